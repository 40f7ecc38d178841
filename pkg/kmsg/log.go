package kmsg

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Log is what the kernel's log had when it was read.
type Log struct {
	Seen []Seen // the newest first
	// From is the time of its oldest record, since boot.
	From time.Duration
	// Whole says that it goes back to the boot, and was read to its end. The kernel overwrites the oldest.
	Whole bool
}

// Seen is an event that has come once or more: same kind, number, device and severity.
type Seen struct {
	Event // the last one
	Count int
}

// A look ends after so many reads, or so long, whatever there is: 64 thousand lines take a fraction of a second, and a
// kernel's log has no more unless log_buf_len makes it larger. It is read from its oldest line on, so that an early end
// would miss what matters most.
const (
	mostReads = 1 << 18
	mostTime  = 2 * time.Second
)

// Read returns what befell devices since boot, as far as the log goes back. It does not wait. The error is one of
// permission (fs.ErrPermission) where CAP_SYSLOG is missing and kernel.dmesg_restrict is set.
func Read(root string) (Log, error) {
	file, err := open(root)
	if err != nil {
		return Log{}, err
	}
	defer func() { _ = file.Close() }()
	raw, err := file.SyscallConn()
	if err != nil {
		return Log{}, fmt.Errorf("cannot read the kernel's log: %w", err)
	}
	// File.Read would wait for the next record.
	r := reader{read: func(buffer []byte) (n int, err error) {
		closed := raw.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buffer)
			return true
		})
		return n, cmp.Or(err, closed)
	}}
	log, err := r.all()
	if err != nil {
		return Log{}, fmt.Errorf("cannot read the kernel's log %s: %w", file.Name(), err)
	}
	return log, nil
}

// Follow tells of what befalls devices from now on, one after the other, until ctx ends; then it returns nil. The error
// says why the log can't be read, or can't any more; it is as Read's.
func Follow(ctx context.Context, root string, tell func(Event)) error {
	return follow(ctx, root, func(r record) {
		if e, is := r.event(); is {
			tell(e)
		}
	})
}

func follow(ctx context.Context, root string, tell func(record)) error {
	file, err := open(root)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	// A pipe in the log's place has nothing old.
	if _, err := file.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, syscall.ESPIPE) {
		return fmt.Errorf("cannot go to the end of the kernel's log: %w", err)
	}
	// The log can be polled: a read waits in Go's poller, without a thread, and ends at its deadline.
	stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for r := (reader{read: file.Read}); ; {
		records, err := r.next()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("cannot follow the kernel's log any further: %w", err)
		}
		for _, record := range records {
			tell(record)
		}
	}
}

// path is where the log is. Root is where /dev is; empty: /.
func path(root string) string { return filepath.Join("/", root, "dev/kmsg") }

func open(root string) (*os.File, error) {
	file, err := os.OpenFile(path(root), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kernel's log: %w", err)
	}
	return file, nil
}

// bufferSize is more than any record takes (CONSOLE_EXT_LOG_MAX, 8 KiB): the kernel drops a record that does not fit,
// and answers EINVAL.
const bufferSize = 16 << 10

// reader reads records. Each read of the log returns one; of a file in its place, as many as there are.
type reader struct {
	read   func([]byte) (int, error)
	buffer [bufferSize]byte
	rest   []byte // of a file's: the beginning of a line
	missed bool   // records were overwritten before they were read
}

// next returns the records of one read, which may be none.
func (r *reader) next() (records []record, err error) {
	n, err := r.read(r.buffer[:])
	switch {
	case errors.Is(err, syscall.EPIPE): // the next read goes on with the oldest that is left
		r.missed = true
		return nil, nil
	case errors.Is(err, syscall.EINTR):
		return nil, nil
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.EOF
	}
	text := slices.Concat(r.rest, r.buffer[:n])
	r.rest = nil
	if n == bufferSize {
		end := bytes.LastIndexByte(text, '\n') + 1
		if r.rest = text[end:]; len(r.rest) > bufferSize {
			r.rest = nil // no line of a log's
		}
		text = text[:end]
	}
	for line := range bytes.Lines(text) {
		if record, is := parse(string(bytes.TrimSuffix(line, []byte{'\n'}))); is {
			records = append(records, record)
		}
	}
	return records, nil
}

// all reads to the end.
func (r *reader) all() (log Log, err error) {
	seen := map[Event]*Seen{}
	ended, any := false, false
	for reads, began := 0, time.Now(); !ended && reads < mostReads && time.Since(began) < mostTime; reads++ {
		records, err := r.next()
		ended = errors.Is(err, syscall.EAGAIN) || errors.Is(err, io.EOF)
		if err != nil && !ended {
			return Log{}, err
		}
		for _, record := range records {
			if !any {
				any, log.From, log.Whole = true, record.at, record.sequence == 0
			}
			if e, is := record.event(); is {
				count(seen, e)
			}
		}
	}
	if !any { // containers have been given /dev/null or a terminal by that name
		return Log{}, errors.New("there is not a single record in it")
	}
	log.Whole = log.Whole && ended && !r.missed
	for _, s := range seen {
		log.Seen = append(log.Seen, *s)
	}
	slices.SortFunc(log.Seen, func(a, b Seen) int {
		return cmp.Or(cmp.Compare(b.Since, a.Since), cmp.Compare(a.Bus, b.Bus), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Number, b.Number),
			cmp.Compare(a.Severity, b.Severity))
	})
	return log, nil
}

// alike is the same for events that differ in their words and their time only.
func (e Event) alike() Event {
	e.Detail, e.Since = "", 0
	return e
}

func count(seen map[Event]*Seen, e Event) {
	key := e.alike()
	if seen[key] == nil {
		seen[key] = &Seen{}
	}
	seen[key].Event = e
	seen[key].Count++
}
