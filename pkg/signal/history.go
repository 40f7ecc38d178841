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

// HistoryDir is the directory of device histories, beside the runs.
const HistoryDir = "history"

const (
	// maxHistoryFiles is the number of files that are kept of a host.
	maxHistoryFiles = 20
	// maxHistoryFileSize is the maximum size of a file in bytes: a node with 16 GPUs needs about 10
	// KiB.
	maxHistoryFileSize = 256 << 10
)

// HostHistory is the history that runs on one host leave for later ones:
// history/<host>/<number>.<run>.<node>, each written once. The numbers increase, so that a listing
// shows which one is the newest, whatever the names of the runs are.
//
// A host only uses its own directory. So it does no harm here that a client may not see names that
// other clients have created.
type HostHistory struct {
	parentDir, hostDir string // the directories of all hosts, and of this host
	fileName           string // fileName of this daemon's file, without its number
	host               string
	access             Access
}

// HostHistory returns the history of the host on which this daemon runs.
func (d *Dir) HostHistory() HostHistory {
	p := newHostHistory(filepath.Dir(d.path), d.host, d.access)
	p.fileName = fmt.Sprintf("%s.%0*d", d.name, IndexWidth(d.size), d.nodeIndex)
	return p
}

// HostHistory returns the history of p.Host for a reader outside of the job, which writes nothing.
func (p Location) HostHistory() HostHistory {
	return newHostHistory(p.LogDir, p.Host, p.withDefaults())
}

func newHostHistory(logDir, host string, via Access) HostHistory {
	parent := filepath.Join(logDir, HistoryDir)
	return HostHistory{parentDir: parent, hostDir: filepath.Join(parent, host), host: host, access: via}
}

// checkHostName returns an error if the host cannot be the name of a directory.
func (p HostHistory) checkHostName() error {
	if p.host == "" || p.host[0] == '.' || strings.ContainsAny(p.host, "/\x00") {
		return fmt.Errorf("cannot keep a history of the host %q: the name is not valid for a directory", p.host)
	}
	return nil
}

// listFiles returns the sorted names of the host's files, oldest first, if no other user can create
// files there. It makes the directory first if writes is set.
func (p HostHistory) listFiles(writes bool) (names []string, err error) {
	vet := Location{Host: p.host}
	if writes {
		err = p.access.ensureDir(p.parentDir)
	}
	if err != nil {
		return nil, err
	}
	// The parent directory is verified before anything is made in it.
	switch facts, err := p.access.FS.Stat(p.parentDir); {
	case err != nil:
		return nil, err
	case !facts.Mode.IsDir():
		return nil, vet.newDirError(p.parentDir, "remove it", "it is not a directory")
	default:
		err = vet.checkOwner(p.parentDir, facts)
		if err == nil && writes {
			err = p.access.ensureDir(p.hostDir)
		}
		if err != nil {
			return nil, err
		}
	}
	names, err = p.access.FS.ListDir(p.hostDir, vet.ownerCheck(p.hostDir))
	names = slices.DeleteFunc(names, func(name string) bool { return fileNumber(name) == 0 })
	slices.Sort(names)
	return names, err
}

// fileNumber returns the number at the beginning of a name in a host's directory, or 0 if there is
// none.
func fileNumber(name string) int64 {
	digits, _, _ := strings.Cut(name, ".")
	number, ok := parseNumber(digits, 31)
	if !ok || len(digits) != 6 {
		return 0
	}
	return number
}

// ReadRecent returns the files of the last runs on the host, newest first, limited to `most` files.
// Files of other users, and files that cannot be read, are skipped.
func (p HostHistory) ReadRecent(ctx context.Context, most int) ([][]byte, error) {
	if err := p.checkHostName(); err != nil {
		return nil, err
	}
	return guardedCall(ctx, p.access.Meter, "read", p.hostDir, func() (left [][]byte, err error) {
		names, err := p.listFiles(false)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, callError("list", p.hostDir, err)
		}
		for _, name := range slices.Backward(names) {
			if len(left) == most || ctx.Err() != nil {
				break
			}
			path := filepath.Join(p.hostDir, name)
			data, facts, err := p.access.FS.ReadRange(path, 0, maxHistoryFileSize)
			if err == nil && facts.Mode.IsRegular() && facts.Size <= maxHistoryFileSize && (Location{}).checkOwner(path, facts) == nil {
				left = append(left, data)
			}
		}
		return left, nil
	})
}

// SaveRecord writes data for later runs, and removes the host's older files except the newest 20.
// It returns ErrAlreadyPublished if this daemon has written its file already.
func (p HostHistory) SaveRecord(ctx context.Context, data []byte) error {
	if err := p.checkHostName(); err != nil {
		return err
	}
	if len(data) > maxHistoryFileSize {
		return fmt.Errorf("cannot keep %d bytes in %s: at most %d are accepted", len(data), p.hostDir, maxHistoryFileSize)
	}
	err := guardedDo(ctx, p.access.Meter, "publish", p.hostDir, func() error {
		names, err := p.listFiles(true)
		if err != nil {
			return err
		}
		// The new file gets the next number.
		next := int64(1)
		for _, name := range names {
			next = max(next, fileNumber(name)+1)
			if _, left, _ := strings.Cut(name, "."); left == p.fileName {
				return ErrAlreadyPublished
			}
		}
		if err := p.access.publishFirst(p.hostDir, fmt.Sprintf("%06d.%s", next, p.fileName), data, false); err != nil {
			return err
		}
		// The oldest files are removed, including one for the file that was just written.
		for _, name := range names[:max(0, len(names)+1-maxHistoryFiles)] {
			p.access.removeQuietly(filepath.Join(p.hostDir, name))
		}
		return nil
	})
	var refused *DirError
	if err == nil || errors.Is(err, ErrAlreadyPublished) || errors.As(err, &refused) || IsStalled(err) {
		return err
	}
	return &DirError{Path: p.hostDir, Host: p.host, Problem: fmt.Sprintf("cannot write there: %v", bareErrno(err)), Remedy: remedyFor(err)}
}
