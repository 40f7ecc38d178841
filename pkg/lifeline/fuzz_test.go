package lifeline

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// script is a connection from which only said can be read, and which keeps what is written.
type script struct {
	net.Conn // nil: nobody calls the rest
	said     *bytes.Reader
	written  []byte
	then     func(written []byte) []byte // what is said after the first thing was written
}

func (s *script) Read(p []byte) (int, error) { return s.said.Read(p) }

func (s *script) Write(p []byte) (int, error) {
	s.written = append(s.written, p...)
	if s.then != nil {
		s.said = bytes.NewReader(s.then(s.written))
		s.then = nil
	}
	return len(p), nil
}

func (s *script) SetDeadline(time.Time) error { return nil }
func (s *script) Close() error                { return nil }
func (s *script) left() int                   { return s.said.Len() }

const fuzzKey = "the key"

// FuzzExamine plays a stranger to the head, who may know how to prove what it claims.
func FuzzExamine(f *testing.F) {
	whole := claimOf(3, identity{1, 2})
	f.Add([]byte(preface), false)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add(whole[:], true)
	f.Add(append(whole[:], "bnsg"...), true)
	f.Fuzz(func(t *testing.T, said []byte, knows bool) {
		conn := &script{said: bytes.NewReader(said)}
		proven := knows && len(said) >= claimSize
		if proven {
			conn.then = func(written []byte) []byte {
				c := claim(said)
				answer := append([]byte(preface), said[:claimSize]...)
				answer = append(answer, workerProof(fuzzKey, challenge(written[len(preface):]), c)...)
				return append(answer, said[claimSize:]...)
			}
		}
		c, _, err := examine(conn, fuzzKey)
		if proven != (err == nil) {
			t.Fatalf("the proof is %v, and the head says %v", proven, err)
		}
		if err == nil && (!bytes.Equal(c[:], said[:claimSize]) || conn.left() != len(said)-claimSize) {
			t.Errorf("%x is taken for %+v, and %d bytes are left", said, c, conn.left())
		}
		if most := len(preface) + claimSize + proofSize; !proven && len(said)-conn.left() > most {
			t.Errorf("the head has read %d bytes", len(said)-conn.left())
		}
	})
}

// FuzzIntroduce plays a head that does not know the key, of which no worker believes anything.
func FuzzIntroduce(f *testing.F) {
	f.Add(append([]byte(preface), make([]byte, challengeSize+verdictSize+proofSize)...))
	f.Add(append([]byte(preface), bytes.Repeat([]byte{taken}, challengeSize+verdictSize+proofSize)...))
	f.Add([]byte("220 mail is welcome here\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		conn := &script{said: bytes.NewReader(said)}
		err := introduce(conn, fuzzKey, 1, identity{})
		if err == nil || err == errTaken {
			t.Fatalf("the worker believes %x: %v", said, err)
		}
		if len(conn.written) != 0 && len(conn.written) != len(preface)+claimSize+proofSize {
			t.Errorf("the worker has written %d bytes", len(conn.written))
		}
	})
}

// FuzzFrames plays somebody who has proven itself.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("bbsnbg"))
	f.Add([]byte("bbx"))
	f.Add([]byte("bogbg"))
	f.Add([]byte("o"))
	f.Add([]byte("rb"))
	f.Fuzz(func(t *testing.T, said []byte) {
		l := newLink(&script{said: bytes.NewReader(said)}, identity{})
		told := 0
		how := l.frames(func(_, _ byte) { told++ })
		good, want := 0, Closed
	frames:
		for rest := said; len(rest) > 0; {
			switch rest[0] {
			case frameBeat, frameSickBeat, frameNudge, frameAsk, frameSummon:
				good, rest = good+1, rest[1:]
			case frameOver:
				good, rest = good+min(1, len(rest)-1), rest[min(2, len(rest)):]
			case frameGoodbye:
				want = Left
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
