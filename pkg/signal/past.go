package signal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// History is the directory of device histories, beside the runs.
const History = "history"

const (
	// pastKept is the number of files that are kept of a host.
	pastKept = 20
	// pastBytes is the maximum size of a file in bytes: a node with 16 GPUs needs about 10 KiB.
	pastBytes = 256 << 10
)

// Past is the history that runs on one host leave for later ones:
// history/<host>/<number>.<run>.<rank>, each written once. The numbers increase, so that a listing
// shows which one is the newest, whatever the names of the runs are.
//
// A host only uses its own directory. So it does no harm here that a client may not see names that
// other clients have created.
type Past struct {
	parent, dir string // the directories of all hosts, and of this host
	name        string // name of this daemon's file, without its number
	host        string
	via         Access
}

// Past returns the history of the host on which this daemon runs.
func (d *Dir) Past() Past {
	p := pastOf(filepath.Dir(d.path), d.host, d.via)
	p.name = fmt.Sprintf("%s.%0*d", d.run, Width(d.size), d.rank)
	return p
}

// Past returns the history of p.Host for a reader outside of the job, which writes nothing.
func (p Place) Past() Past { return pastOf(p.LogDir, p.Host, p.ready()) }

func pastOf(logDir, host string, via Access) Past {
	parent := filepath.Join(logDir, History)
	return Past{parent: parent, dir: filepath.Join(parent, host), host: host, via: via}
}

// named returns an error if the host cannot be the name of a directory.
func (p Past) named() error {
	if p.host == "" || p.host[0] == '.' || strings.ContainsAny(p.host, "/\x00") {
		return fmt.Errorf("cannot keep a history of the host %q: give it a name that a file can have", p.host)
	}
	return nil
}

// names returns the sorted names of the host's files, oldest first, if no other user can create
// files there. It makes the directory first if writes is set.
func (p Past) names(writes bool) (names []string, err error) {
	vet := Place{Host: p.host}
	if writes {
		err = p.via.makeOwn(p.parent)
	}
	if err != nil {
		return nil, err
	}
	// The parent directory is verified before anything is made in it.
	switch facts, err := p.via.Share.Look(p.parent); {
	case err != nil:
		return nil, err
	case !facts.Mode.IsDir():
		return nil, vet.refuse(p.parent, "remove it", "it is not a directory")
	default:
		err = vet.trust(p.parent, facts)
		if err == nil && writes {
			err = p.via.makeOwn(p.dir)
		}
		if err != nil {
			return nil, err
		}
	}
	names, err = p.via.Share.List(p.dir, vet.vetting(p.dir))
	names = slices.DeleteFunc(names, func(name string) bool { return numberOf(name) == 0 })
	slices.Sort(names)
	return names, err
}

// numberOf returns the number at the beginning of a name in a host's directory, or 0 if there is
// none.
func numberOf(name string) int64 {
	digits, _, _ := strings.Cut(name, ".")
	number, ok := parseNumber(digits, 31)
	if !ok || len(digits) != 6 {
		return 0
	}
	return number
}

// Recall returns the files of the last runs on the host, newest first, limited to `most` files.
// Files of other users, and files that cannot be read, are skipped.
func (p Past) Recall(ctx context.Context, most int) ([][]byte, error) {
	if err := p.named(); err != nil {
		return nil, err
	}
	return guarded(ctx, p.via.Meter, "read", p.dir, func() (left [][]byte, err error) {
		names, err := p.names(false)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list %s: %w", p.dir, err)
		}
		for _, name := range slices.Backward(names) {
			if len(left) == most || ctx.Err() != nil {
				break
			}
			path := filepath.Join(p.dir, name)
			data, facts, err := p.via.Share.Part(path, 0, pastBytes)
			if err == nil && facts.Mode.IsRegular() && facts.Size <= pastBytes && (Place{}).trust(path, facts) == nil {
				left = append(left, data)
			}
		}
		return left, nil
	})
}

// Keep writes data for later runs, and removes the host's older files except the newest 20. It
// returns ErrTaken if this daemon has written its file already.
func (p Past) Keep(ctx context.Context, data []byte) error {
	if err := p.named(); err != nil {
		return err
	}
	if len(data) > pastBytes {
		return fmt.Errorf("cannot keep %d bytes in %s: at most %d are read", len(data), p.dir, pastBytes)
	}
	err := do(ctx, p.via.Meter, "publish", p.dir, func() error {
		names, err := p.names(true)
		if err != nil {
			return err
		}
		// The new file gets the next number.
		next := int64(1)
		for _, name := range names {
			next = max(next, numberOf(name)+1)
			if _, left, _ := strings.Cut(name, "."); left == p.name {
				return ErrTaken
			}
		}
		if err := p.via.writeFirst(p.dir, fmt.Sprintf("%06d.%s", next, p.name), data, false); err != nil {
			return err
		}
		// The oldest files are removed, including one for the file that was just written.
		for _, name := range names[:max(0, len(names)+1-pastKept)] {
			p.via.tidy(filepath.Join(p.dir, name))
		}
		return nil
	})
	var refused *DirError
	if err == nil || errors.Is(err, ErrTaken) || errors.As(err, &refused) || Stalled(err) {
		return err
	}
	return &DirError{Path: p.dir, Host: p.host, Seen: fmt.Sprintf("cannot write there: %v", errno(err)), Mend: mendFor(err)}
}
