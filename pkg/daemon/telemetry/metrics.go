package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/files"
)

// writeInterval is the interval at which the file is written if [File.RequestWrite] is not called.
// Most collectors read it about as often.
const writeInterval = 15 * time.Second

// File writes a daemon's metrics to a file as long as the daemon runs.
type File struct {
	path       string
	source     Source
	onError    func(error)
	lastFailed bool // the last write has failed; used only by the writing goroutine

	writeRequested chan struct{} // buffered by one: write now
	stopped        chan struct{} // closed by Close, which is called once
	ended          chan struct{} // closed when the writing goroutine has ended
}

// StartFile starts a goroutine that writes the source's metrics to the file at path, every 15 s and
// after each call of [File.RequestWrite]. No other daemon may write the same file. If a write
// fails, the goroutine passes the error to say. It reports no further errors until a write has
// succeeded. The caller must call Close.
func StartFile(path string, source Source, say func(error)) *File {
	f := &File{
		path: path, source: source, onError: say,
		writeRequested: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{}),
	}
	go f.writeLoop()
	return f
}

// Path returns the path of the file, which exists until Close.
func (f *File) Path() string { return f.path }

// RequestWrite makes the file be written soon. It does not wait for that.
func (f *File) RequestWrite() {
	select {
	case f.writeRequested <- struct{}{}:
	default:
	}
}

// writeLoop writes the file until Close, and then removes it.
func (f *File) writeLoop() {
	defer close(f.ended)
	tick := time.NewTicker(writeInterval)
	defer tick.Stop()
	for {
		// Other users may read the file, because a node-exporter usually runs as another user.
		err := files.ReplaceFile(f.path, f.source(), 0o644)
		if err != nil && !f.lastFailed {
			f.onError(fmt.Errorf("cannot write the metrics: %v", err))
		}
		f.lastFailed = err != nil
		select {
		case <-f.stopped:
			if err := os.Remove(f.path); err != nil && !os.IsNotExist(err) {
				f.onError(fmt.Errorf("cannot remove the metrics: %v", err))
			}
			return
		case <-tick.C:
		case <-f.writeRequested:
		}
	}
}

// Close removes the file. It waits for that until ctx ends, because a file system may hang. It must
// be called only once.
func (f *File) Close(ctx context.Context) error {
	close(f.stopped)
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot remove %s: its file system does not respond: %v", f.path, context.Cause(ctx))
	}
}

// Source is a function that returns the present metrics of a daemon in the text format. It must be
// safe for concurrent use, and must not wait for a file system or a network.
type Source func() []byte

// Text builds metrics in the text format of Prometheus. Samples have no timestamps, because a
// textfile collector rejects them. A family without samples is left out.
type Text struct {
	buffer       bytes.Buffer
	commonLabels string // formatted labels of every sample
	family       string
	heading      string // the family's comment lines; empty after its first sample
}

// NewText returns an empty Text. Each sample gets the given labels, which are alternating names and
// values.
func NewText(labels ...string) *Text { return &Text{commonLabels: formatLabels(labels...)} }

// StartFamily begins a family of samples, which follow.
func (t *Text) StartFamily(name, kind, help string) {
	t.family = name
	t.heading = fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// AddSample adds a sample to the family, with additional labels.
func (t *Text) AddSample(value float64, labels ...string) {
	t.buffer.WriteString(t.heading)
	t.heading = ""
	all := t.commonLabels
	if len(labels) > 0 {
		all += "," + formatLabels(labels...)
	}
	fmt.Fprintf(&t.buffer, "%s{%s} %s\n", t.family, all, strconv.FormatFloat(value, 'g', -1, 64))
}

// Bytes returns the text.
func (t *Text) Bytes() []byte { return t.buffer.Bytes() }

// formatLabels formats labels, given as alternating names and values.
func formatLabels(labels ...string) string {
	var parts []string
	for i := 0; i+1 < len(labels); i += 2 {
		parts = append(parts, labels[i]+`="`+labelEscaper.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD"))+`"`)
	}
	return strings.Join(parts, ",")
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
