package lifeline

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The head speaks first: the preface and its challenge. The worker answers with the preface, its claim and a proof of
// it, and the head with a verdict and a proof of that. All have fixed sizes: nobody says how much is to be read.
const (
	preface       = "bringupd\x01" // the last byte is the version
	challengeSize = 32
	identitySize  = 8
	proofSize     = sha256.Size
	claimSize     = 4 + identitySize + challengeSize // rank, identity, challenge
	verdictSize   = 1
)

// strangerTime is how long somebody may take to prove who it is.
const strangerTime = 2 * time.Second

// What the head's verdict on a worker may be.
const (
	welcome byte = iota
	taken        // another daemon of this rank is connected
)

// Why somebody is not let in.
var (
	errGarbage  = errors.New("it does not speak the lifeline's protocol")
	errWrongKey = errors.New("it does not know this attempt's key")
	errTaken    = errors.New("another daemon of this rank is connected already")
)

type (
	challenge [challengeSize]byte
	identity  [identitySize]byte
)

// claim is who a worker says that it is.
type claim struct {
	rank      uint32
	identity  identity
	challenge challenge
}

func (c claim) encode() []byte {
	raw := binary.BigEndian.AppendUint32(make([]byte, 0, claimSize), c.rank)
	raw = append(raw, c.identity[:]...)
	return append(raw, c.challenge[:]...)
}

func decodeClaim(raw []byte) (c claim) {
	c.rank = binary.BigEndian.Uint32(raw)
	copy(c.identity[:], raw[4:])
	copy(c.challenge[:], raw[4+identitySize:])
	return c
}

// prove signs parts of fixed sizes; who tells the two sides apart, so that neither's proof serves the other.
func prove(key, who string, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(who)) // it never fails: see hash.Hash
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

func workerProof(key string, ours challenge, c claim) []byte {
	return prove(key, "worker", ours[:], c.challenge[:], binary.BigEndian.AppendUint32(nil, c.rank), c.identity[:])
}

func headProof(key string, ours challenge, c claim, verdict byte) []byte {
	return prove(key, "head", ours[:], c.challenge[:], []byte{verdict})
}

func draw(into []byte) { _, _ = rand.Read(into) } // it never fails: see crypto/rand

// examine is the head's side up to its verdict: it returns who is there, proven, and the challenge that it was given.
func examine(conn net.Conn, key string) (c claim, ours challenge, err error) {
	if err := conn.SetDeadline(time.Now().Add(strangerTime)); err != nil {
		return c, ours, err
	}
	draw(ours[:])
	if _, err := conn.Write(append([]byte(preface), ours[:]...)); err != nil {
		return c, ours, err
	}
	var buffer [claimSize + proofSize]byte
	if err := readPreface(conn, buffer[:len(preface)]); err != nil {
		return c, ours, err
	}
	if _, err := io.ReadFull(conn, buffer[:]); err != nil {
		return c, ours, err
	}
	c = decodeClaim(buffer[:claimSize])
	if !hmac.Equal(buffer[claimSize:], workerProof(key, ours, c)) {
		return c, ours, errWrongKey
	}
	return c, ours, nil
}

// pronounce tells the worker the head's verdict. Nothing of this time is left on the connection.
func pronounce(conn net.Conn, key string, c claim, ours challenge, verdict byte) error {
	if _, err := conn.Write(append([]byte{verdict}, headProof(key, ours, c, verdict)...)); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// introduce is the worker's side. It returns errTaken where the head says so, and proves it.
func introduce(conn net.Conn, key string, rank int, self identity) error {
	if err := conn.SetDeadline(time.Now().Add(strangerTime)); err != nil {
		return err
	}
	var buffer [challengeSize]byte
	if err := readPreface(conn, buffer[:len(preface)]); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, buffer[:]); err != nil {
		return err
	}
	theirs := challenge(buffer)
	c := claim{rank: uint32(rank), identity: self}
	draw(c.challenge[:])
	answer := append([]byte(preface), c.encode()...)
	if _, err := conn.Write(append(answer, workerProof(key, theirs, c)...)); err != nil {
		return err
	}
	var verdict [verdictSize + proofSize]byte
	if _, err := io.ReadFull(conn, verdict[:]); err != nil {
		return err
	}
	if !hmac.Equal(verdict[verdictSize:], headProof(key, theirs, c, verdict[0])) {
		return errWrongKey
	}
	switch verdict[0] {
	case welcome:
		return conn.SetDeadline(time.Time{})
	case taken:
		return errTaken
	default:
		return fmt.Errorf("cannot make out the head's verdict %d", verdict[0])
	}
}

func readPreface(conn net.Conn, buffer []byte) error {
	if _, err := io.ReadFull(conn, buffer); err != nil {
		return err
	}
	if !bytes.Equal(buffer, []byte(preface)) {
		return errGarbage
	}
	return nil
}
