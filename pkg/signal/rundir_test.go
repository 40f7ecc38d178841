package signal

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestCreate(t *testing.T) {
	p := newPlace(t)
	other := ControlRecord{NameHead, &record.Head{Address: "address"}}
	d, err := CreateRun(within(t), p, record.Job{ConfigDigest: "digest"}, other)
	must(t, err)
	if d.Name() != p.Run || d.Path() != filepath.Join(p.LogDir, p.Run) || len(d.Nonce()) != 64 {
		t.Errorf("made %s at %s with the nonce %q", d.Name(), d.Path(), d.Nonce())
	}
	if got := names(t, d.Path()); !slices.Equal(got, []string{ControlDir, EventsDir, LogsDir, NodesDir}) {
		t.Errorf("it has %v", got)
	}
	if got := names(t, p.LogDir); !slices.Equal(got, []string{p.Run}) {
		t.Errorf("the log directory has %v", got)
	}
	for _, path := range []string{"", ControlDir, NodesDir, LogsDir, EventsDir} {
		if info, err := os.Stat(filepath.Join(d.Path(), path)); err != nil || info.Mode().Perm() != dirMode {
			t.Errorf("%q: mode %v, %v", path, info.Mode(), err)
		}
	}
	var job record.Job
	must(t, d.ReadRecord(within(t), ControlDir, NameJob, &job))
	isOwn := job.Run == p.Run && job.Key == p.Key && job.Size == p.Size && job.Nonce == d.Nonce()
	if !isOwn || job.FileSystem != d.FileSystem().Name || job.ConfigDigest != "digest" {
		t.Errorf("the job is %+v", job)
	}
	// A peer that sees the directory finds the other records in it.
	p.NodeIndex = 1
	peer, _, err := NewFinder(p).AwaitRun(within(t))
	must(t, err)
	var head record.Head
	if err := peer.ReadRecord(within(t), ControlDir, NameHead, &head); err != nil || head.Address != "address" {
		t.Errorf("the other record is %+v: %v", head, err)
	}
}

// TestSecret verifies that daemons of one attempt have the same secrets, a different one for each
// purpose, and that those of another attempt differ.
func TestSecret(t *testing.T) {
	p, other := newPlace(t), newPlace(t)
	d, stranger := create(t, p), create(t, other)
	p.NodeIndex = 1
	peer, _, err := NewFinder(p).AwaitRun(within(t))
	must(t, err)
	secret := d.DeriveSecret("ray")
	if len(secret) != 32 || !bytes.Equal(secret, peer.DeriveSecret("ray")) {
		t.Errorf("the head has %x, and its peer %x", secret, peer.DeriveSecret("ray"))
	}
	if bytes.Equal(secret, d.DeriveSecret("dask")) ||
		bytes.Equal(secret, stranger.DeriveSecret("ray")) || strings.Contains(d.Nonce(), hex.EncodeToString(secret)) {
		t.Errorf("%x is no secret of its own", secret)
	}
}

// TestCreateOnATakenName verifies that peers find the right directory if one that another launch
// has left has the name.
func TestCreateOnATakenName(t *testing.T) {
	for _, tc := range []struct{ name, job string }{
		{"of another launch", `{"v":2,"nonce":"theirs","key":"other","size":4}` + "\n"},
		{"of another launch in another version", `{"v":1,"nonce":"theirs","key":"other","size":4}` + "\n"},
		{"without a whole record", `{"v":2,"nonce":"theirs","key":"fac`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			p.LogDir = filepath.Join(p.LogDir, "deeper")
			run(t, &p, tc.job)
			d := create(t, p)
			if !strings.HasPrefix(d.Name(), p.Run+"+") {
				t.Errorf("made %s", d.Name())
			}
			p.NodeIndex = 1
			found, job, err := NewFinder(p).AwaitRun(within(t))
			if err != nil || found.Path() != d.Path() || job.Nonce != d.Nonce() || found.Nonce() != d.Nonce() {
				t.Errorf("found %v, %+v, %v; want %s", found, job, err, d.Path())
			}
		})
	}
}

// TestAdviceOnATakenName verifies that only a user who names runs is told to give another name.
func TestAdviceOnATakenName(t *testing.T) {
	for isNamed, want := range map[bool]string{
		false: "give another --job-id, or another --log-dir", true: "give another --log-dir",
	} {
		p := newPlace(t)
		p.IsNamed = isNamed
		create(t, p)
		_, err := CreateRun(within(t), p, record.Job{})
		if refused, ok := errors.AsType[*DirError](err); !ok || refused.Remedy != want {
			t.Errorf("IsNamed=%t: got %v, want %q", isNamed, err, want)
		}
	}
}

// TestCreateByMany verifies that exactly one of several heads of one launch, which should not
// exist, succeeds.
func TestCreateByMany(t *testing.T) {
	p := newPlace(t)
	var made atomic.Int64
	var heads sync.WaitGroup
	for range 8 {
		heads.Go(func() {
			_, err := CreateRun(within(t), p, record.Job{})
			if err == nil {
				made.Add(1)
			} else if _, refused := errors.AsType[*DirError](err); !refused {
				t.Errorf("got %v", err)
			}
		})
	}
	heads.Wait()
	if got := names(t, p.LogDir); made.Load() != 1 || !slices.Equal(got, []string{p.Run}) {
		t.Errorf("%d heads made it, and there is %v", made.Load(), got)
	}
}

func TestCreateThatFailsLeavesNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		fs   *faulty
	}{
		{"the record can't be written", &faulty{onWrite: func(string, []byte) error { return syscall.EDQUOT }}},
		{"the tree can't be made", &faulty{onChange: func(how Op, from, to string) error {
			if how == OpMkdir && filepath.Base(to) == LogsDir {
				return syscall.EDQUOT
			}
			return plain.ChangeName(how, from, to)
		}}},
		{"it can't be shown", refusing(OpRename, syscall.EIO)},
		{"the log directory can't be listed", &faulty{onList: func(string) ([]string,
			error) {
			return nil, syscall.EIO
		}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			p.FS = tc.fs
			_, err := CreateRun(within(t), p, record.Job{})
			mended(t, err, p.LogDir, map[string]string{})
			if got := names(t, p.LogDir); len(got) != 0 {
				t.Errorf("left %v", got)
			}
		})
	}
}

func TestCreateBelievesTheListing(t *testing.T) {
	p := newPlace(t)
	p.FS = repeating(OpRename)
	d := create(t, p)
	if got := names(t, p.LogDir); !slices.Equal(got, []string{d.Name()}) {
		t.Errorf("there is %v", got)
	}
}

// TestNoNameTellsTheNonce verifies that no name reveals the nonce, which is a secret: every user
// may be able to list the log directory.
func TestNoNameTellsTheNonce(t *testing.T) {
	p := newPlace(t)
	p.LogDir = filepath.Join(p.LogDir, "deeper")
	// This takes the name, so that another one is chosen.
	run(t, &p, `{"v":2,"nonce":"theirs","key":"other","size":4}`+"\n")
	var mu sync.Mutex
	var seen []string // guarded by mu
	see := func(paths ...string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, paths...)
	}
	p.FS = &faulty{
		onWrite: func(path string, _ []byte) error {
			see(path)
			return nil
		},
		onChange: func(how Op, from, to string) error {
			see(from, to)
			return plain.ChangeName(how, from, to)
		},
	}
	d := create(t, p)
	publish(t, d, NodesDir, "0001.failed", &record.Failure{Message: "something"})
	for _, err := range []error{
		d.UpdateLatestLink(within(t)), d.WriteHeartbeat(within(t), NodesDir),
		d.PublishOnce(within(t), "result.json", &record.Mark{}),
	} {
		must(t, err)
	}
	for _, name := range append(seen, d.Path()) {
		for at := range len(d.nonce) - 7 {
			if strings.Contains(name, d.nonce[at:at+8]) {
				t.Errorf("%s tells of the nonce %s", name, d.nonce)
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %q were seen", seen)
	}
}

func TestRead(t *testing.T) {
	d := create(t, newPlace(t))
	theirs := &Dir{path: d.path, nonce: "theirs", access: Access{}.withDefaults()}
	publish(t, theirs, NodesDir, "0001.failed", &record.Failure{Message: "of old"})
	publish(t, d, NodesDir, "0002.failed", &record.Failure{Message: "of now"})
	put(t, filepath.Join(d.path, NodesDir, "0003.failed"), `{"v":2,"nonce":`)
	put(t, filepath.Join(d.path, NodesDir, "0004.failed"), `{"v":3,"nonce":"`+d.nonce+`"}`+"\n")
	put(t, filepath.Join(d.path, NodesDir, "0005.failed"), strings.Repeat(" ", maxRecordSize)+"\n")
	mkdir(t, filepath.Join(d.path, NodesDir, "0006.failed"), dirMode)
	point(t, filepath.Join(d.path, NodesDir, "0007.failed"), "0002.failed")
	over := errors.New("over")
	for _, tc := range []struct {
		name   string
		file   string
		what   string
		absent bool // the read waits until its deadline
		bad    bool
	}{
		{name: "ours", file: "0002.failed", what: "of now"},
		{name: "another attempt's", file: "0001.failed", absent: true},
		{name: "cut short", file: "0003.failed", absent: true},
		{name: "missing", file: "0009.failed", absent: true},
		{name: "of a newer version", file: "0004.failed", bad: true},
		{name: "too large", file: "0005.failed", bad: true},
		{name: "a directory", file: "0006.failed", bad: true},
		{name: "a link", file: "0007.failed", bad: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(within(t), ceiling/2, errCeiling)
			if tc.absent {
				ctx, cancel = context.WithTimeoutCause(within(t), 20*time.Millisecond, over)
			}
			defer cancel()
			var rec record.Failure
			err := d.ReadRecord(ctx, NodesDir, tc.file, &rec)
			if errors.Is(err, over) != tc.absent || (err != nil) != (tc.absent || tc.bad) || rec.Message != tc.what {
				t.Errorf("got %+v, %v", rec, err)
			}
		})
	}
}

// TestReadAgain verifies that a file that a listing shows, but that this client does not know yet,
// is read a little later.
func TestReadAgain(t *testing.T) {
	p := newPlace(t)
	answers := []error{syscall.ENOENT, syscall.ESTALE, syscall.EIO, nil}
	p.FS = &faulty{onRead: func(string) error {
		answer := answers[0]
		answers = answers[1:]
		return answer
	}}
	d := create(t, p)
	var job record.Job
	if err := d.ReadRecord(within(t), ControlDir, NameJob, &job); err != nil ||
		job.Nonce != d.Nonce() || len(answers) != 0 {
		t.Errorf("got %+v, %v, with %d answers left", job, err, len(answers))
	}
}

// TestLostAnswer verifies that a record whose answer was lost is not replaced by an empty mark of
// the same name. The mark is the fallback if a record cannot be written.
func TestLostAnswer(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alone func(ctx context.Context, d *Dir) error
	}{
		{"marked", func(ctx context.Context, d *Dir) error { return d.WriteMark(ctx, ControlDir, NameOrderlyEnd) }},
		{"by a mark's new name", func(ctx context.Context, d *Dir) error {
			return d.RenameMark(ctx, ControlDir, NameGateOpen, NameOrderlyEnd)
		}},
	} {
		for _, lost := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, lost: %v", tc.name, lost), func(t *testing.T) {
				p := newPlace(t)
				answers := false
				p.FS = &faulty{onChange: func(how Op, from, to string) error {
					switch {
					case answers || filepath.Base(to) != NameOrderlyEnd:
						return plain.ChangeName(how, from, to)
					case lost:
						_ = plain.ChangeName(how, from, to)
					}
					return syscall.EIO
				}}
				d := create(t, p)
				must(t, d.WriteMark(within(t), ControlDir, NameGateOpen))
				if err := d.PublishRecord(within(t), ControlDir, NameOrderlyEnd,
					&record.OrderlyEnd{Code: 3}, false); err == nil {
					t.Fatal("nothing was lost")
				}
				answers = true
				must(t, tc.alone(within(t), d))
				data, err := os.ReadFile(filepath.Join(d.Path(), ControlDir, NameOrderlyEnd))
				if err != nil || (len(data) > 0) != lost {
					t.Errorf("there is %q, %v", data, err)
				}
				var drain record.OrderlyEnd
				if err := d.readRecordOnce(within(t), ControlDir, NameOrderlyEnd, &drain); lost &&
					(err != nil || drain.Code != 3) {
					t.Errorf("got %+v, %v", drain, err)
				}
			})
		}
	}
}

// TestNoSuchFileInPassing verifies that temporary answers "no such file" to renames and lookups
// neither lose a record nor create one. Each occurs as often as one of a few clients would observe
// it.
func TestNoSuchFileInPassing(t *testing.T) {
	const often = 3
	for name, works := range map[string]bool{"and the rename has worked": true, "and nothing is done": false} {
		for _, hidden := range []bool{false, true} { // whether lookups miss the new name
			t.Run(fmt.Sprintf("%s, hidden: %v", name, hidden), func(t *testing.T) {
				p := newPlace(t)
				renames, looks := 0, 0
				p.FS = &faulty{
					onChange: func(how Op, from, to string) error {
						if filepath.Base(to) != NameOrderlyEnd {
							return plain.ChangeName(how, from, to)
						}
						if renames++; renames > often || renames == 1 && works {
							if err := plain.ChangeName(how, from, to); err != nil {
								return err
							}
						}
						if renames > often {
							return nil
						}
						return syscall.ENOENT
					},
					onLook: func(path string) error {
						base := filepath.Base(path)
						draft := strings.HasPrefix(base, "."+NameOrderlyEnd+".")
						if draft {
							looks++
						}
						if draft && looks <= often || base == NameOrderlyEnd && hidden {
							return syscall.ENOENT
						}
						return nil
					},
				}
				d := create(t, p)
				must(t, d.PublishRecord(within(t), ControlDir, NameOrderlyEnd, &record.OrderlyEnd{Code: 3}, false))
				if _, err := os.Stat(filepath.Join(d.Path(), ControlDir, NameOrderlyEnd)); err != nil {
					t.Error(err)
				}
				if works && !hidden && renames != 2 {
					t.Errorf("it took %d tries to see that the first has worked", renames)
				}
			})
		}
	}
}

func TestBeat(t *testing.T) {
	d := create(t, newPlace(t))
	nodes := filepath.Join(d.Path(), NodesDir)
	beat := func(d *Dir) {
		t.Helper()
		must(t, d.WriteHeartbeat(within(t), NodesDir))
	}
	for count := range 3 {
		beat(d)
		if got, want := names(t, nodes), fmt.Sprintf("0000.beat.%06d", count+1); !slices.Equal(got, []string{want}) {
			t.Fatalf("there is %v, want %s", got, want)
		}
	}
	beat(d.ForNode(record.MemberIndex(3, 1, d.size)))
	if got := names(t, nodes); !slices.Equal(got, []string{"0000.beat.000003", "0003-1.beat.000001"}) {
		t.Errorf("there is %v", got)
	}
	// Another process has removed the file: the heartbeats continue.
	must(t, os.Remove(filepath.Join(nodes, "0000.beat.000003")))
	beat(d)
	if got := names(t, nodes); !slices.Equal(got, []string{"0000.beat.000004", "0003-1.beat.000001"}) {
		t.Errorf("there is %v", got)
	}
}

// TestBeatTriesTwice verifies that a rename that fails temporarily is tried once more, so that no
// old name stays; if that fails, too, the heartbeat gets a new name of its own.
func TestBeatTriesTwice(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers []error // of the renames
		made    bool    // although the answer was an error
		want    []string
	}{
		{"at once", nil, false, []string{"0000.beat.000002"}},
		{"the second time", []error{syscall.ESTALE}, false, []string{"0000.beat.000002"}},
		{"never", []error{syscall.ESTALE, syscall.EIO}, false, []string{"0000.beat.000001", "0000.beat.000002"}},
		{"for good", []error{syscall.EACCES}, false, []string{"0000.beat.000001", "0000.beat.000002"}},
		{"the answer is lost", []error{syscall.EIO}, true, []string{"0000.beat.000002"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			var answers []error
			asked := 0
			p.FS = &faulty{onChange: func(how Op, from, to string) error {
				if how != OpRename || filepath.Base(filepath.Dir(to)) != NodesDir {
					return plain.ChangeName(how, from, to)
				}
				asked++
				if len(answers) == 0 {
					return plain.ChangeName(how, from, to)
				}
				if tc.made {
					_ = plain.ChangeName(how, from, to)
				}
				answer := answers[0]
				answers = answers[1:]
				return answer
			}}
			d := create(t, p)
			for range 2 {
				must(t, d.WriteHeartbeat(within(t), NodesDir))
				answers = tc.answers
			}
			if got := names(t, filepath.Join(d.Path(), NodesDir)); !slices.Equal(got, tc.want) || asked > 2 {
				t.Errorf("there is %v after %d renames, want %v after two at most", got, asked, tc.want)
			}
			// The next heartbeat continues from the name that was written.
			if err := d.WriteHeartbeat(within(t), NodesDir); err != nil ||
				!slices.Contains(names(t, filepath.Join(d.Path(), NodesDir)), "0000.beat.000003") {
				t.Errorf("the third one: %v, %v", names(t, filepath.Join(d.Path(), NodesDir)), err)
			}
		})
	}
}

// TestBeatAfterItsTime verifies that a heartbeat whose deadline has passed when it begins does not
// affect the next one.
func TestBeatAfterItsTime(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alive int // number of checks that still find the deadline in the future
	}{{"over before", 0}, {"over as it begins", 1}} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			p.Meter = new(CallMeter)
			d := create(t, p)
			for range 64 { // select chooses at random between two channels that are ready
				over, cancel := context.WithCancel(within(t))
				cancel()
				err := d.WriteHeartbeat(&ending{over, tc.alive}, NodesDir)
				if _, stalled := errors.AsType[*StallError](err); !stalled && (err != nil || tc.alive == 0) {
					t.Fatalf("got %v", err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), ceiling/6)
			defer cancel()
			if err := d.WriteHeartbeat(ctx, NodesDir); err != nil || !p.Meter.AwaitIdle(ctx) {
				t.Fatal(err)
			}
			if got := names(t, filepath.Join(d.Path(), NodesDir)); len(got) != 1 {
				t.Errorf("there is %v, want one beat", got)
			}
		})
	}
}

// ending is a context that has ended, but reports so only after the first queries.
type ending struct {
	context.Context
	alive int
}

func (e *ending) Err() error {
	if e.alive--; e.alive >= 0 {
		return nil
	}
	return e.Context.Err()
}

// TestNothingHalfWritten publishes, lists and reads concurrently: a file that a listing shows can
// be read at once and completely.
func TestNothingHalfWritten(t *testing.T) {
	const writers, records, readers = 16, 40, 4
	p := newPlace(t)
	p.Size = writers
	d := create(t, p)
	var writing, reading sync.WaitGroup
	written := make(chan struct{})
	for node := range writers {
		writing.Go(func() {
			own := d.ForNode(node)
			for i := range records {
				rec := &record.Failure{Code: i, Message: strings.Repeat("x", 1+node*i*16), LostNodes: []int{node * i}}
				publish(t, own, NodesDir, fmt.Sprintf("%04d.state%d", node, i), rec)
				if err := own.WriteHeartbeat(within(t), NodesDir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range readers {
		reading.Go(func() {
			read := make(map[string]bool)
			for last := false; !last; {
				select {
				case <-written:
					last = true
				default:
				}
				readWhole(t, d, read)
			}
			if len(read) != writers*records {
				t.Errorf("read %d records of %d", len(read), writers*records)
			}
		})
	}
	writing.Wait()
	close(written)
	reading.Wait()
}

func readWhole(t *testing.T, d *Dir, read map[string]bool) {
	all, err := plain.ListDir(filepath.Join(d.Path(), NodesDir), nil)
	if err != nil {
		t.Error(err)
	}
	for _, name := range all {
		n, ok := ParseStateName(name, 0)
		if !ok {
			t.Errorf("%q is shown", name)
		}
		if hasNumber(n.State) || read[name] {
			continue
		}
		read[name] = true
		var rec record.Failure
		if err := d.readRecordOnce(within(t), NodesDir, name, &rec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		repeated := n.Member * rec.Code
		if rec.NodeIndex != n.Member || len(rec.Message) != 1+repeated*16 || rec.LostNodes[0] != repeated {
			t.Errorf("%s is %+v", name, rec.Header)
		}
	}
}
