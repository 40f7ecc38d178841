package rendezvous

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzSocket lets a node read any data that a program sends to its socket: its answers can be
// parsed, it ends after the connection does, and it keeps no state of a program that has gone.
func FuzzSocket(f *testing.F) {
	f.Add([]byte(`{"id":1,"op":"hello","rank":0}` + "\n" +
		`{"id":2,"op":"put","key":"a","value":"dmFsdWU="}` + "\n" + `{"id":3,"op":"commit"}` + "\n"))
	f.Add([]byte(`{"id":1,"op":"get","key":"never","timeout":1e300}` + "\n" +
		`{"id":1,"op":"get","key":"\u0000","timeout":-1}` + "\n"))
	f.Add([]byte(`{"id":-1,"op":"fence","name":"","timeout":0}` + "\n" + `{"op":"waits"}` + "\n"))
	f.Add([]byte(`{"id":1,"op":"put","key":"a","value":"dmFsdWU="}` + "\n")) // without a commit
	f.Add([]byte("\n\n{}\n[]\nnull\n\xff\n"))
	s := raise(f, 1, 1, false)
	n := s.nodes[0]
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.serveProgram(t.Context(), ours)
		}()
		read := make(chan error, 1)
		go func() {
			lines := bufio.NewReader(theirs)
			for {
				line, err := lines.ReadBytes('\n')
				if err == io.EOF && len(line) == 0 {
					read <- nil
					return
				}
				var answer Response
				if err == nil {
					err = json.Unmarshal(line, &answer)
				}
				if err != nil {
					read <- err
					return
				}
			}
		}()
		_ = theirs.SetWriteDeadline(time.Now().Add(ceiling))
		_, _ = theirs.Write(sent) // it may be refused before its end
		_ = theirs.Close()
		if err := <-read; err != nil && err != io.ErrClosedPipe {
			t.Errorf("it answers what cannot be read: %v", err)
		}
		select {
		case <-ended:
		case <-time.After(ceiling):
			t.Fatal("it goes on after the program has gone")
		}
		n.putQuota.mu.Lock()
		defer n.putQuota.mu.Unlock()
		if n.putQuota.items != 0 || n.putQuota.bytes != 0 {
			t.Errorf("%d items and %d bytes are kept", n.putQuota.items, n.putQuota.bytes)
		}
	})
}
