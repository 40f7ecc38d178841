package memory

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Client is one daemon's access to a share. Each call consists of one or several steps, between
// which other clients may make theirs. A Policy determines the effect of each step.
type Client struct {
	Share  *Share
	Policy Policy
}

var _ signal.SharedFS = (*Client)(nil)

// Step is the kind of a step. For changes of names it is their signal.Op.
type Step string

// The steps of other calls.
const (
	OpenToList   Step = "open to list"
	List         Step = "list"
	Look         Step = "look"
	OpenToRead   Step = "open to read"
	Read         Step = "read"
	Follow       Step = "follow"
	Statfs       Step = "statfs"
	Create       Step = "create"
	Write        Step = "write"
	Sync         Step = "sync"
	Close        Step = "close"
	OpenToAppend Step = "open to append"
	Append       Step = "append"
)

// Policy determines the effects of a client's steps. Plain is a policy under which all steps
// succeed at once; other policies can embed it. All methods except Step, Begin, Cut and Reply are
// called within a step, with the share's lock held.
type Policy interface {
	// Step executes a step: it waits for the step's latency, if any, and returns the result of effect,
	// called with the share's lock held, or an error instead.
	Step(what Step, p string, effect func() error) error
	// Begin is called before a file is written.
	Begin(p string)
	// Refuse returns an error if a step that changes something must fail, otherwise nil.
	Refuse(what Step, from, p string) error
	// Resolve is called with the file at a path that a client lists, inspects or reads, or with nil if
	// there is none. It returns the error of that lookup.
	Resolve(what Step, p string, f *File) error
	// View returns the names that a listing, or one part of it, shows, and whether there are more
	// parts.
	View(dir *File, p string, part int) (names []string, more bool)
	// Content returns the data that is read from a file, and whether it is complete.
	Content(p string, f *File) (data []byte, whole bool)
	// Cut splits data that is written to a file into parts, each of which is written by one step.
	Cut(p string, data []byte) [][]byte
	// May is called before a file is created, written, appended to, renamed, linked or removed. If it
	// is created, empty reports whether it will stay empty.
	May(what Step, from, p string, f *File, empty bool)
	// Happened is called after the change, with its directory and whether the file is new. If it
	// returns an error, the client receives it, although the change was made.
	Happened(what Step, from, p string, dir, f *File, fresh bool) error
	// Reply is called when a file was read, completely or not, or names were changed.
	Reply(what Step, p string, whole bool)
}

func (c *Client) step(what Step, p string, effect func() error) error {
	return c.Policy.Step(what, p, effect)
}

// refusable executes a step that the policy may refuse.
func (c *Client) refusable(what Step, from, p string, effect func() error) error {
	return c.step(what, p, func() error {
		if err := c.Policy.Refuse(what, from, p); err != nil {
			return err
		}
		return effect()
	})
}

// open returns the file at the path.
func (c *Client) open(what Step, p string) (*File, error) {
	f := c.Share.Find(p)
	if err := c.Policy.Resolve(what, p, f); err != nil {
		return nil, err
	}
	return f, nil
}

// ListDir implements signal.SharedFS.
func (c *Client) ListDir(p string, vet func(signal.FileAttributes) error) ([]string, error) {
	var dir *File
	var facts signal.FileAttributes
	err := c.step(OpenToList, p, func() (err error) {
		if dir, err = c.open(List, p); err != nil {
			return err
		}
		if !dir.Kind.IsDir() {
			return syscall.ENOTDIR
		}
		facts = c.facts(dir)
		return nil
	})
	if err == nil && vet != nil {
		err = vet(facts)
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for part, more := 0, true; more; part++ {
		err := c.step(List, p, func() error {
			var shown []string
			shown, more = c.Policy.View(dir, p, part)
			names = append(names, shown...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// HoldDir implements signal.SharedFS. No other user ever replaces a directory of the share.
func (c *Client) HoldDir(p string, vet func(signal.FileAttributes) error) ([]string, error) {
	return c.ListDir(p, vet)
}

func (c *Client) facts(f *File) signal.FileAttributes {
	mode := f.Kind
	switch {
	case mode.Perm() != 0:
	case mode.IsDir():
		mode |= 0o700
	default:
		mode |= 0o600
	}
	facts := signal.FileAttributes{Mode: mode, Owner: cmp.Or(f.Owner, os.Geteuid())}
	if c.Share.Clock != nil {
		facts.ModTime, facts.Size = f.written, int64(len(f.Data))
	}
	return facts
}

// Stat implements signal.SharedFS.
func (c *Client) Stat(p string) (seen signal.FileAttributes, err error) {
	err = c.step(Look, p, func() error {
		f, err := c.open(Look, p)
		if err == nil {
			seen = c.facts(f)
		}
		return err
	})
	return seen, err
}

// ReadFile implements signal.SharedFS.
func (c *Client) ReadFile(p string) (data []byte, err error) {
	var f *File
	err = c.step(OpenToRead, p, func() (err error) {
		if f, err = c.open(Read, p); err == nil && f.Kind&fs.ModeSymlink != 0 {
			err = syscall.ELOOP
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var whole bool
	err = c.step(Read, p, func() error {
		if f.Kind.IsDir() {
			return syscall.EISDIR
		}
		data, whole = c.Policy.Content(p, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.Policy.Reply(Read, p, whole)
	return data, nil
}

// ReadRange implements signal.SharedFS.
func (c *Client) ReadRange(p string, offset, most int64) ([]byte, signal.FileAttributes, error) {
	seen, err := c.Stat(p)
	if err != nil || !seen.Mode.IsRegular() {
		return nil, seen, err
	}
	data, err := c.ReadFile(p)
	seen.Size = int64(len(data))
	from := min(offset, seen.Size)
	return data[from:min(from+most, seen.Size)], seen, err
}

// ReadLink implements signal.SharedFS.
func (c *Client) ReadLink(p string) (target string, err error) {
	err = c.step(Follow, p, func() error {
		f := c.Share.Find(p)
		switch {
		case f == nil:
			return syscall.ENOENT
		case f.Kind&fs.ModeSymlink == 0:
			return syscall.EINVAL
		}
		target = f.Target
		return nil
	})
	return target, err
}

// FileSystemOf implements signal.SharedFS.
func (c *Client) FileSystemOf(p string) (files.FileSystem, error) {
	return files.FileSystem{Name: "nfs"}, c.step(Statfs, p, func() error { return nil })
}

// SpaceOf implements signal.SharedFS.
func (c *Client) SpaceOf(p string) (files.Space, error) {
	return files.Space{Size: 1 << 40, Free: 1 << 39},
		c.step(Statfs, p, func() error { return nil })
}

// WriteFile implements signal.SharedFS. As on a disk, it consists of several steps: the file exists
// and is empty, then it contains a part of its data, then all of it, and then it is closed.
func (c *Client) WriteFile(p string, data []byte, durable bool) error {
	c.Policy.Begin(p)
	var f *File
	err := c.refusable(Create, "", p, func() (err error) {
		if len(data) > 0 && c.Share.Find(p) != nil {
			return syscall.EEXIST
		}
		if f, err = c.create(Create, p, len(data) == 0); err == nil && len(data) > 0 {
			f.Open = true
		}
		return err
	})
	if err == nil && len(data) > 0 {
		err = c.fill(p, f, data)
	}
	if err == nil && durable {
		err = c.refusable(Sync, "", p, func() error { return nil })
	}
	if err != nil {
		return err
	}
	return c.step(Close, p, func() error {
		err := c.Policy.Refuse(Close, "", p)
		f.Open = err != nil && len(data) > 0
		return err
	})
}

// fill writes data in the parts that the policy determines.
func (c *Client) fill(p string, f *File, data []byte) error {
	for _, part := range c.Policy.Cut(p, data) {
		err := c.refusable(Write, "", p, func() error {
			f.Data = append(f.Data, part...)
			c.Share.date(f)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// create creates a regular file, which must not exist.
func (c *Client) create(what Step, p string, empty bool) (*File, error) {
	f := c.Share.Find(p)
	c.Policy.May(what, "", p, f, empty)
	dir, err := c.Share.Parent(p)
	if err != nil {
		return nil, err
	}
	fresh := f == nil
	if fresh {
		f = &File{Maker: c}
		c.Share.date(f)
		c.Share.Put(p, f)
	}
	return f, c.Policy.Happened(what, "", p, dir, f, fresh)
}

// OpenAppend implements signal.SharedFS.
func (c *Client) OpenAppend(p string) (io.WriteCloser, error) {
	var f *File
	err := c.refusable(OpenToAppend, "", p, func() (err error) {
		f, err = c.create(OpenToAppend, p, false)
		return err
	})
	if err != nil {
		return nil, err
	}
	return appender{c, p, f}, nil
}

type appender struct {
	client *Client
	path   string
	file   *File
}

func (a appender) Write(data []byte) (int, error) {
	err := a.client.refusable(Append, "", a.path, func() error {
		a.file.Data = append(a.file.Data, data...)
		a.client.Share.date(a.file)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(data), nil
}

func (a appender) Close() error { return a.client.step(Close, a.path, func() error { return nil }) }

// ChangeName implements signal.SharedFS.
func (c *Client) ChangeName(how signal.Op, from, to string) error {
	err := c.refusable(Step(how), from, to, func() error { return c.change(how, from, to) })
	if err == nil {
		c.Policy.Reply(Step(how), to, false)
	}
	return err
}

func (c *Client) change(how signal.Op, from, to string) error {
	switch how {
	case signal.OpMkdir:
		return c.put(how, from, to, NewDir(c))
	case signal.OpRename:
		return c.rename(from, to)
	case signal.OpLink:
		return c.link(from, to)
	case signal.OpSymlink:
		return c.put(how, from, to, &File{Kind: fs.ModeSymlink, Target: from, Maker: c})
	case signal.OpRemove:
		return c.remove(to)
	case signal.OpSync:
		return nil
	default:
		return errors.New("the share knows no such change: " + string(how))
	}
}

// put creates a directory or a link, which must not exist.
func (c *Client) put(how signal.Op, from, p string, f *File) error {
	dir, err := c.Share.Parent(p)
	if err != nil {
		return err
	}
	if dir.Live[path.Base(p)] != nil {
		return syscall.EEXIST
	}
	c.Policy.May(Step(how), from, p, f, true)
	c.Share.date(f)
	c.Share.Put(p, f)
	return c.Policy.Happened(Step(how), from, p, dir, f, true)
}

func (c *Client) rename(from, to string) error {
	f := c.Share.Find(from)
	dir, err := c.Share.Parent(to)
	if f == nil || err != nil {
		return syscall.ENOENT
	}
	if old := c.Share.Find(to); old != nil && old.Kind.IsDir() && len(old.Live) > 0 {
		return syscall.ENOTEMPTY
	}
	c.Policy.May(Step(signal.OpRename), from, to, f, false)
	c.Share.Drop(from)
	c.Share.Drop(to)
	c.Share.Put(to, f)
	return c.Policy.Happened(Step(signal.OpRename), from, to, dir, f, false)
}

func (c *Client) link(from, to string) error {
	f := c.Share.Find(from)
	dir, err := c.Share.Parent(to)
	if f == nil || err != nil {
		return syscall.ENOENT
	}
	if old := c.Share.Find(to); old != nil && old != f {
		return syscall.EEXIST
	}
	c.Policy.May(Step(signal.OpLink), from, to, f, false)
	c.Share.Put(to, f)
	return c.Policy.Happened(Step(signal.OpLink), from, to, dir, f, false)
}

func (c *Client) remove(p string) error {
	c.Policy.May(Step(signal.OpRemove), "", p, c.Share.Find(p), false)
	c.Share.Drop(p)
	dir, _ := c.Share.Parent(p) // nil if the directory no longer exists
	return c.Policy.Happened(Step(signal.OpRemove), "", p, dir, nil, false)
}

// Plain is the policy of a share that all clients see identically, and whose only faults are those
// of its porter.
type Plain struct {
	Share *Share
	// Porter is called before each step, as before a call into a real share. It may wait, and may
	// return an error instead of the step's result.
	Porter signal.Interceptor
}

var _ Policy = Plain{}

// operations maps steps to the kinds of calls to which they belong.
var operations = map[Step]signal.Op{
	OpenToList: signal.OpOpen, List: signal.OpList, Look: signal.OpStat,
	OpenToRead: signal.OpOpen, Read: signal.OpRead,
	Follow: signal.OpReadlink, Statfs: signal.OpStatfs,
	Create: signal.OpOpen, Write: signal.OpWrite, Sync: signal.OpSync, Close: signal.OpClose,
	OpenToAppend: signal.OpOpen, Append: signal.OpWrite,
	Step(signal.OpMkdir): signal.OpMkdir, Step(signal.OpRename): signal.OpRename,
	Step(signal.OpLink): signal.OpLink, Step(signal.OpSymlink): signal.OpSymlink,
	Step(signal.OpRemove): signal.OpRemove,
}

// Access returns a new daemon's access to the share through a porter.
func (s *Share) Access(porter signal.Interceptor) *Client {
	return &Client{Share: s, Policy: Plain{Share: s, Porter: porter}}
}

// Step implements Policy.
func (p Plain) Step(what Step, at string, effect func() error) error {
	op := operations[what]
	entered, err := p.Porter.BeginCall(op, at)
	if err != nil {
		return err
	}
	defer p.Porter.EndCall(op, at, entered)
	time.Sleep(p.Share.Latency)
	p.Share.Lock()
	defer p.Share.Unlock()
	return effect()
}

// Begin implements Policy.
func (Plain) Begin(string) {}

// Refuse implements Policy.
func (Plain) Refuse(Step, string, string) error { return nil }

// Resolve implements Policy.
func (Plain) Resolve(_ Step, _ string, f *File) error {
	if f == nil {
		return syscall.ENOENT
	}
	return nil
}

// View implements Policy.
func (p Plain) View(dir *File, _ string, _ int) (names []string, more bool) {
	for name := range dir.Live {
		if name[0] != '.' {
			names = append(names, name)
		}
	}
	return names, false
}

// Content implements Policy.
func (Plain) Content(_ string, f *File) (data []byte, whole bool) {
	return append([]byte(nil), f.Data...), true
}

// Cut implements Policy.
func (Plain) Cut(_ string, data []byte) [][]byte { return [][]byte{data} }

// May implements Policy.
func (Plain) May(Step, string, string, *File, bool) {}

// Happened implements Policy.
func (p Plain) Happened(_ Step, _, _ string, dir, _ *File, _ bool) error {
	if dir != nil {
		dir.Forget(p.Share.Now())
	}
	return nil
}

// Reply implements Policy.
func (Plain) Reply(Step, string, bool) {}
