package process

import (
	"bytes"
	"io"
	"sync"
)

// maxPartialLine is the number of bytes from which an unfinished line is passed on.
const maxPartialLine = 64 << 10

// LineTagger is a writer that passes on whole lines, each after a tag.
type LineTagger struct {
	out     io.Writer
	tag     string
	partial []byte
	mu      *sync.Mutex // protects out, which several taggers share
}

// NewLineTagger returns a writer of whole lines to out, which it uses with mu held.
func NewLineTagger(out io.Writer, tag string, mu *sync.Mutex) *LineTagger {
	return &LineTagger{out: out, tag: tag, mu: mu}
}

// Write implements io.Writer.
func (t *LineTagger) Write(data []byte) (int, error) {
	t.partial = append(t.partial, data...)
	var lines bytes.Buffer
	for {
		end := bytes.IndexByte(t.partial, '\n') + 1
		if end == 0 && len(t.partial) < maxPartialLine {
			break
		}
		if end == 0 {
			t.partial = append(t.partial, '\n')
			end = len(t.partial)
		}
		lines.WriteString(t.tag)
		lines.Write(t.partial[:end])
		t.partial = t.partial[end:]
	}
	if lines.Len() == 0 {
		return len(data), nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.out.Write(lines.Bytes()); err != nil {
		return 0, err
	}
	return len(data), nil
}
