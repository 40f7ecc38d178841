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

// Log holds the events that were in the kernel log when it was read.
type Log struct {
	Events []CountedEvent // newest first
	// Oldest is the time of the oldest record, since boot.
	Oldest time.Duration
	// Complete says that the log covers the time since boot, and was read to its end. The kernel
	// overwrites the oldest records.
	Complete bool
}

// CountedEvent is an event that was logged one or more times with the same kind, number, device and
// severity.
type CountedEvent struct {
	Event // the last one
	Count int
}

// Limits for reading the log, whatever its content. Reading 64 thousand lines takes a fraction of a
// second, and a kernel log is no larger unless log_buf_len is set. The oldest records are read
// first, so with too low limits the newest records, which matter most, would be missed.
const (
	maxReads    = 1 << 18
	maxReadTime = 2 * time.Second
)

// ReadLog returns the events since boot, as far as the log goes back. It does not wait for new
// records. root is the directory that contains /dev; empty: /. The error wraps fs.ErrPermission if
// CAP_SYSLOG is missing and kernel.dmesg_restrict is set.
func ReadLog(root string) (Log, error) {
	file, err := openLog(root)
	if err != nil {
		return Log{}, err
	}
	defer func() { _ = file.Close() }()
	raw, err := file.SyscallConn()
	if err != nil {
		return Log{}, fmt.Errorf("cannot read the kernel log: %w", err)
	}
	// Use the raw connection: File.Read would wait for the next record.
	r := recordReader{read: func(buffer []byte) (n int, err error) {
		closed := raw.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buffer)
			return true
		})
		return n, cmp.Or(err, closed)
	}}
	log, err := r.readAll()
	if err != nil {
		return Log{}, fmt.Errorf("cannot read the kernel log %s: %w", file.Name(), err)
	}
	return log, nil
}

// FollowEvents calls the callback for each event from now on, in order, until ctx ends. It then
// returns nil. It returns an error if the log cannot be read, or not any more. The errors are those
// of ReadLog.
func FollowEvents(ctx context.Context, root string, tell func(Event)) error {
	return followRecords(ctx, root, func(r logRecord) {
		if e, is := r.toEvent(); is {
			tell(e)
		}
	})
}

// followRecords calls the callback for each new record of the log. It ends as FollowEvents does.
func followRecords(ctx context.Context, root string, tell func(logRecord)) error {
	file, err := openLog(root)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	// If a pipe replaces the log, it has no old records.
	if _, err := file.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, syscall.ESPIPE) {
		return fmt.Errorf("cannot seek to the end of the kernel log: %w", err)
	}
	// The log supports poll: a read waits in Go's poller without blocking a thread, and ends at its
	// deadline.
	stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for r := (recordReader{read: file.Read}); ; {
		records, err := r.nextRecords()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("cannot continue to follow the kernel log: %w", err)
		}
		for _, record := range records {
			tell(record)
		}
	}
}

// logPath returns the path of the log. root is the directory that contains /dev; empty: /.
func logPath(root string) string { return filepath.Join("/", root, "dev/kmsg") }

// openLog opens the log without waiting for records.
func openLog(root string) (*os.File, error) {
	file, err := os.OpenFile(logPath(root), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kernel log: %w", err)
	}
	return file, nil
}

// bufferSize is larger than any record (CONSOLE_EXT_LOG_MAX, 8 KiB). If a record does not fit, the
// kernel drops it and returns EINVAL.
const bufferSize = 16 << 10

// recordReader reads records. Each read of the log returns one record; if a file replaces the log,
// a read may return several.
type recordReader struct {
	read        func([]byte) (int, error)
	buffer      [bufferSize]byte
	partialLine []byte // incomplete last line, if a file replaces the log
	hasGap      bool   // records were overwritten before they were read
}

// nextRecords returns the records of one read, possibly none.
func (r *recordReader) nextRecords() (records []logRecord, err error) {
	n, err := r.read(r.buffer[:])
	switch {
	case errors.Is(err, syscall.EPIPE): // the next read returns the oldest record that is left
		r.hasGap = true
		return nil, nil
	case errors.Is(err, syscall.EINTR):
		return nil, nil
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.EOF
	}
	// If the buffer is full, the last line may be incomplete. Keep it for the next read.
	text := slices.Concat(r.partialLine, r.buffer[:n])
	r.partialLine = nil
	if n == bufferSize {
		end := bytes.LastIndexByte(text, '\n') + 1
		if r.partialLine = text[end:]; len(r.partialLine) > bufferSize {
			r.partialLine = nil // too long for a line of the log
		}
		text = text[:end]
	}
	for line := range bytes.Lines(text) {
		if record, is := parseRecord(string(bytes.TrimSuffix(line, []byte{'\n'}))); is {
			records = append(records, record)
		}
	}
	return records, nil
}

// readAll reads the log to its end, and counts equal events.
func (r *recordReader) readAll() (log Log, err error) {
	seen := map[Event]*CountedEvent{}
	ended, any := false, false
	for reads, began := 0, time.Now(); !ended && reads < maxReads && time.Since(began) < maxReadTime; reads++ {
		records, err := r.nextRecords()
		ended = errors.Is(err, syscall.EAGAIN) || errors.Is(err, io.EOF)
		if err != nil && !ended {
			return Log{}, err
		}
		for _, record := range records {
			if !any {
				any, log.Oldest, log.Complete = true, record.sinceBoot, record.sequence == 0
			}
			if e, is := record.toEvent(); is {
				key := e.withoutDetail()
				if seen[key] == nil {
					seen[key] = &CountedEvent{}
				}
				seen[key].Event = e
				seen[key].Count++
			}
		}
	}
	if !any { // a container may have /dev/null or a terminal as its /dev/kmsg
		return Log{}, errors.New("it has no records")
	}
	log.Complete = log.Complete && ended && !r.hasGap
	for _, s := range seen {
		log.Events = append(log.Events, *s)
	}
	slices.SortFunc(log.Events, func(a, b CountedEvent) int {
		return cmp.Or(cmp.Compare(b.Since, a.Since), cmp.Compare(a.Bus, b.Bus), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Number, b.Number),
			cmp.Compare(a.Severity, b.Severity))
	})
	return log, nil
}

// withoutDetail returns the event without its text and time. The results are equal for equal
// events.
func (e Event) withoutDetail() Event {
	e.Detail, e.Since = "", 0
	return e
}
