package signal

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// BadNodes is the directory, beside the runs, of what NoteBadNodes writes.
const BadNodes = "bad-nodes"

// NoteBadNodes writes down, a host a line, which nodes were to blame for the
// end of the run, and returns where: in a file of the run's name, so that those
// of a job's attempts stand side by side. It is for who starts the job again.
// The first one who notes them for a run is right.
func (d *Dir) NoteBadNodes(ctx context.Context, hosts []string) (path string, err error) {
	dir := filepath.Join(filepath.Dir(d.path), BadNodes)
	path = filepath.Join(dir, d.run)
	err = d.change(ctx, "publish", path, func() error {
		if err := d.via.makeOwn(dir); err != nil {
			return err
		}
		return d.via.writeFirst(dir, d.run, []byte(strings.Join(hosts, "\n")+"\n"), true)
	})
	if errors.Is(err, ErrTaken) {
		return path, nil
	}
	return path, err
}

const (
	// evidenceTail is how much of the end of a file is kept, in bytes: what a
	// service said before its death is there.
	evidenceTail = 1 << 20
	// evidenceFiles bounds how many files are kept of a directory.
	evidenceFiles = 256
)

// KeepEvidence copies the ends of the files in a node-local directory to Logs,
// under name, so that they outlive the private directory they are in. Files in
// its subdirectories and links are left out. It gives up when ctx ends.
func (d *Dir) KeepEvidence(ctx context.Context, from, name string) error {
	to := filepath.Join(d.path, Logs, name)
	// A meter of its own: where the disk hangs, the share is not to be suspected.
	return do(ctx, new(Meter), "copy to", to, func() error {
		entries, err := os.ReadDir(from)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.via.Share.Change(MakeDir, "", to); err != nil {
			return err
		}
		for _, entry := range entries[:min(len(entries), evidenceFiles)] {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !entry.Type().IsRegular() {
				continue
			}
			if err := copyTail(d.via.Share, filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
				return err
			}
		}
		return nil
	})
}

func copyTail(share Share, from, to string) (err error) {
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	out, err := share.Extend(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, io.NewSectionReader(in, max(0, info.Size()-evidenceTail), evidenceTail))
	return err
}
