package lifeline

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
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

type (
	challenge [challengeSize]byte
	identity  [identitySize]byte
)

// claim is who a worker says that it is, as it says so: its rank, its identity and its challenge.
type claim [claimSize]byte

func claimOf(rank uint32, self identity) (c claim) {
	binary.BigEndian.PutUint32(c[:], rank)
	copy(c[4:], self[:])
	draw(c[4+identitySize:])
	return c
}

func (c claim) rank() uint32       { return binary.BigEndian.Uint32(c[:]) }
func (c claim) identity() identity { return identity(c[4 : 4+identitySize]) }

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
	const who = 4 + identitySize
	return prove(key, "worker", ours[:], c[who:], c[:who])
}

func headProof(key string, ours challenge, c claim, verdict byte) []byte {
	return prove(key, "head", ours[:], c[4+identitySize:], []byte{verdict})
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
	var proof [proofSize]byte
	if err := hear(conn, c[:], proof[:]); err != nil {
		return c, ours, err
	}
	if !hmac.Equal(proof[:], workerProof(key, ours, c)) {
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
	var theirs challenge
	if err := hear(conn, theirs[:]); err != nil {
		return err
	}
	c := claimOf(uint32(rank), self)
	if _, err := conn.Write(slices.Concat([]byte(preface), c[:], workerProof(key, theirs, c))); err != nil {
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

// hear reads the preface, and what comes after it.
func hear(conn net.Conn, parts ...[]byte) error {
	var opening [len(preface)]byte
	if _, err := io.ReadFull(conn, opening[:]); err != nil {
		return err
	}
	if string(opening[:]) != preface {
		return errGarbage
	}
	for _, part := range parts {
		if _, err := io.ReadFull(conn, part); err != nil {
			return err
		}
	}
	return nil
}
