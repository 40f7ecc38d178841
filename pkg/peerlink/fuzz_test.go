package peerlink

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// script is a connection from which only said can be read, and which records what is written.
type script struct {
	net.Conn // nil: the other methods are not called
	said     []byte
	pace     int // maximum length of a read; 0: no limit
	written  []byte
	then     func(written []byte) []byte // appends to said after a write; may be nil
	closed   bool
}

func (s *script) Read(p []byte) (int, error) {
	if s.pace > 0 {
		p = p[:min(len(p), s.pace)]
	}
	if len(s.said) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.said)
	s.said = s.said[n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error) {
	s.written = append(s.written, p...)
	if s.then != nil {
		s.said = append(s.said, s.then(s.written)...)
	}
	return len(p), nil
}

func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) Close() error                     { s.closed = true; return nil }

// FuzzExamine simulates an unknown client of the head, which may have the key and then sends this
// claim or an altered one.
func FuzzExamine(f *testing.F) {
	whole := newClaim(3, identity{1, 2})
	f.Add([]byte(preface), false, 0)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false, 0)
	f.Add(append([]byte(preface), make([]byte, messageSize+claimSize+tagSize)...), false, 0)
	f.Add(whole[:], true, 0)
	f.Add(whole[:], true, 7)
	f.Add(append(whole[:], "bnsg"...), true, 0)
	f.Fuzz(func(t *testing.T, said []byte, knows bool, altered int) {
		conn := &script{said: bytes.Clone(said)}
		most := len(said)
		if knows = knows && len(said) >= claimSize; knows {
			state, err := newHandshake(testKey, true)
			must(t, err)
			conn.said, _, _, _ = state.WriteMessage([]byte(preface), nil)
			conn.then = func(written []byte) []byte {
				if len(written) != len(preface)+messageSize {
					return nil
				}
				_, sends, _, err := state.ReadMessage(nil, written[len(preface):])
				must(t, err)
				sealed, _ := sends.Encrypt(nil, nil, said[:claimSize])
				if altered > 0 {
					sealed[altered%len(sealed)] ^= 1
				}
				return append(sealed, said[claimSize:]...)
			}
			most = len(said) - claimSize
		}
		c, sealed, err := handshakeAsHead(conn, testKey)
		proven := knows && altered <= 0
		if proven != (err == nil) {
			t.Fatalf("it is proven: %v, and the head says %v", proven, err)
		}
		if proven && (!bytes.Equal(c[:], said[:claimSize]) || len(conn.said) != most || sealed == nil) {
			t.Errorf("%x is taken for %+v, and %d bytes are left", said, c, len(conn.said))
		}
		if read := most - len(conn.said); !knows && read > len(preface)+messageSize {
			t.Errorf("the head has read %d bytes", read)
		}
	})
}

// FuzzIntroduce simulates a head without the key, which no worker may accept.
func FuzzIntroduce(f *testing.F) {
	f.Add(append([]byte(preface), make([]byte, messageSize+verdictSize+tagSize)...))
	f.Add(append([]byte(preface), bytes.Repeat([]byte{verdictDuplicate}, messageSize+verdictSize+tagSize)...))
	f.Add([]byte("220 mail is welcome here\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		conn := &script{said: said}
		_, err := handshakeAsWorker(conn, testKey, 1, identity{})
		if err == nil || err == errDuplicateDaemon {
			t.Fatalf("the worker believes %x: %v", said, err)
		}
		if len(conn.written) != len(preface)+messageSize {
			t.Errorf("the worker has written %d bytes", len(conn.written))
		}
	})
}

// FuzzFrames simulates a peer that has authenticated itself.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("bbsnbg"))
	f.Add([]byte("bbx"))
	f.Add([]byte("bmgbg"))
	f.Add([]byte("e"))
	f.Add([]byte("rb"))
	f.Add([]byte("bma long name"))
	f.Add([]byte("bename\ncontent"))
	f.Fuzz(func(t *testing.T, said []byte) {
		said = said[:min(len(said), maxPayload)] // one record
		wire := new(script)
		theirs, ours := sealedPair(wire, wire)
		_, _ = theirs.Write(said)
		wire.said = wire.written
		l := newLink(ours, identity{})
		told := 0
		how := l.readFrames(func(byte, []byte) { told++ })
		good, want := 0, Closed
	frames:
		for rest := said; len(rest) > 0; {
			switch rest[0] {
			case frameHeartbeat, frameStalledHeartbeat, framePoll, frameRequestHeartbeat, frameRequestStream, frameExit:
				good, rest = good+1, rest[1:]
			case frameReport: // the rest of the record belongs to it
				break frames
			case frameReportEnd:
				good++
				break frames
			case frameGoodbye:
				want = Goodbye
				break frames
			default:
				want = Broken
				break frames
			}
		}
		if told != good || how != want {
			t.Errorf("%q: %d frames, then %v; want %d, then %v", said, told, how, good, want)
		}
	})
}

// FuzzRecords changes records in transit: at some byte, bytes are removed and others are inserted.
// The receiver must only read bytes that were sent, and only those that were sent before that
// point.
func FuzzRecords(f *testing.F) {
	long := bytes.Repeat([]byte("much "), 7000)
	f.Add([]byte("one two"), 3, 0, 0, []byte(nil), 0, 0)
	f.Add([]byte("one two"), 3, 4, 1, []byte{1}, 0, 0)
	f.Add(long, 20000, 17000, 0, []byte("x"), 100, 500)
	f.Add(long, 10000, 0, 0, []byte{0xff, 0xff, 0}, 1, 1)
	f.Add(long, 10, 28, 28, []byte(nil), 64, 7)
	f.Fuzz(func(t *testing.T, sent []byte, piece, at, out int, in []byte, pace, room int) {
		wire := &script{pace: max(pace, 0)}
		theirs, ours := sealedPair(wire, wire)
		for rest := sent; len(rest) > 0; {
			n := min(max(piece, len(sent)/64+1), len(rest))
			if _, err := theirs.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		records := wire.written
		at = min(max(at, 0), len(records))
		out = min(max(out, 0), len(records)-at)
		wire.said = append(bytes.Clone(records[:at]), in...)
		wire.said = append(wire.said, records[at+out:]...)
		same := bytes.Equal(wire.said, records)
		into := make([]byte, min(max(room, 1), 1<<15))
		var got []byte
		var err error
		for err == nil {
			var n int
			n, err = ours.Read(into)
			got = append(got, into[:n]...)
		}
		if !bytes.HasPrefix(sent, got) {
			t.Fatalf("%q was read, and %q was sent", got, sent)
		}
		if whole := len(got) == len(sent) && err == io.EOF; same != whole {
			t.Errorf("the records are unchanged: %v; %d bytes of %d were read, then %v", same, len(got), len(sent), err)
		}
		if forged := err == errForged; forged != wire.closed {
			t.Errorf("%v, and the connection is closed: %v", err, wire.closed)
		}
	})
}
