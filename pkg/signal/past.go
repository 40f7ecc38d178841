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

// History is the directory, beside the runs, of what runs leave of a host's devices for later ones.
const History = "history"

const (
	// pastKept is how many files of a host are kept.
	pastKept = 20
	// pastBytes bounds one of them: those of a node with 16 GPUs have some 10 KiB.
	pastBytes = 256 << 10
)

// Past is what runs on one host have left for later ones: history/<host>/<number>.<run>.<rank>, each written once. The
// numbers count up, so that a listing tells which is the newest, whatever the runs are called.
//
// A host reads and writes its own folder alone. That a client may take a name for missing which another has made costs
// nothing here: nobody else makes any in it.
type Past struct {
	parent, dir string // of all hosts, and of this one
	name        string // of what this daemon leaves, without its number
	host        string
	via         Access
}

// Past returns what earlier runs have left of the host on which this one is used.
func (d *Dir) Past() Past {
	p := pastOf(filepath.Dir(d.path), d.host, d.via)
	p.name = fmt.Sprintf("%s.%0*d", d.run, Width(d.size), d.rank)
	return p
}

// Past returns the same for somebody outside, who leaves nothing.
func (p Place) Past() Past { return pastOf(p.LogDir, p.Host, p.ready()) }

func pastOf(logDir, host string, via Access) Past {
	parent := filepath.Join(logDir, History)
	return Past{parent: parent, dir: filepath.Join(parent, host), host: host, via: via}
}

// named refuses a host that no folder can be called by.
func (p Past) named() error {
	if p.host == "" || p.host[0] == '.' || strings.ContainsAny(p.host, "/\x00") {
		return fmt.Errorf("cannot keep a history of the host %q: give it a name that a file can have", p.host)
	}
	return nil
}

// names lists what there is of the host, by name and so by age, once nobody else can plant anything there. It makes the
// folder first, where somebody is about to write.
func (p Past) names(writes bool) (names []string, err error) {
	vet := Place{Host: p.host}
	if writes {
		err = p.via.makeOwn(p.parent)
	}
	if err != nil {
		return nil, err
	}
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

// numberOf returns the number that a name in a host's folder begins with; 0 where it has none.
func numberOf(name string) int64 {
	digits, _, _ := strings.Cut(name, ".")
	number, ok := parseNumber(digits, 31)
	if !ok || len(digits) != 6 {
		return 0
	}
	return number
}

// Recall returns what the last runs on the host have left, the newest first and at most so many; nothing where there is
// nothing. What is no file of this user's, or cannot be read, is left out.
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

// Keep leaves data for later runs, and removes what is older than the newest 20. What this daemon has left before stays.
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
