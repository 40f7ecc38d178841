package pairs

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

const (
	challengeSize = 32
	purposeSize   = 9
	proofSize     = sha256.Size
)

// strangerTime is how long somebody may take to prove who it is.
const strangerTime = 5 * time.Second

var errStranger = errors.New("somebody else answers there")

// purpose is what a connection is for. Between two nodes there is one of each stream alone.
type purpose struct {
	from  uint32 // the rank that calls
	round uint16
	way   uint8 // its place in ways
	turn  uint8 // 0: the caller sends; 1: it receives
	// stream is left out where connections are looked for: they are alike.
	stream uint8
}

var ways = []Way{TCP, Verbs}

func (p purpose) bytes() []byte {
	said := binary.BigEndian.AppendUint32(nil, p.from)
	said = binary.BigEndian.AppendUint16(said, p.round)
	return append(said, p.way, p.turn, p.stream)
}

func purposeOf(said []byte) purpose {
	return purpose{binary.BigEndian.Uint32(said), binary.BigEndian.Uint16(said[4:]), said[6], said[7], said[8]}
}

// prove signs parts of fixed sizes; who tells the two sides apart, so that neither's proof serves the other.
func prove(secret []byte, who string, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(who)) // it never fails: see hash.Hash
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// examine is the side of who is called. A stranger learns nothing but a number that was drawn for it. All that is said
// has a fixed size.
func examine(conn net.Conn, secret []byte) (purpose, error) {
	if err := conn.SetDeadline(time.Now().Add(strangerTime)); err != nil {
		return purpose{}, err
	}
	var ours [challengeSize]byte
	_, _ = rand.Read(ours[:]) // it never fails: see crypto/rand
	if _, err := conn.Write(ours[:]); err != nil {
		return purpose{}, err
	}
	var said [purposeSize + challengeSize + proofSize]byte
	if _, err := io.ReadFull(conn, said[:]); err != nil {
		return purpose{}, err
	}
	claim, proof := said[:purposeSize+challengeSize], said[purposeSize+challengeSize:]
	if !hmac.Equal(proof, prove(secret, "caller", ours[:], claim)) {
		return purpose{}, errStranger
	}
	if _, err := conn.Write(prove(secret, "called", ours[:], claim)); err != nil {
		return purpose{}, err
	}
	return purposeOf(claim), nil
}

// introduce is the caller's side. The connection's deadline is the caller's affair.
func introduce(conn net.Conn, secret []byte, what purpose) error {
	var theirs, ours [challengeSize]byte
	if _, err := io.ReadFull(conn, theirs[:]); err != nil {
		return err
	}
	_, _ = rand.Read(ours[:])
	claim := slices.Concat(what.bytes(), ours[:])
	if _, err := conn.Write(slices.Concat(claim, prove(secret, "caller", theirs[:], claim))); err != nil {
		return err
	}
	var proof [proofSize]byte
	if _, err := io.ReadFull(conn, proof[:]); err != nil {
		return err
	}
	if !hmac.Equal(proof[:], prove(secret, "called", theirs[:], claim)) {
		return errStranger
	}
	return nil
}
