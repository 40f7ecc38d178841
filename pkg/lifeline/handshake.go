package lifeline

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/flynn/noise"
)

// The handshake is that of the Noise protocol NNpsk0 (https://noiseprotocol.org), with the run's
// key as the pre-shared key and the preface as the prologue. Both sides send the preface at once.
// The worker's first message follows its preface, and the head answers it. Only then each side
// knows that the other one has the key and is not a recording: the worker sends its claim and the
// head its verdict, with the keys of the connection. All sizes are fixed, so no side says how much
// is read before it has proven itself.
const (
	preface      = "bringupd\x02" // the last byte is the version
	messageSize  = 32 + tagSize   // an ephemeral public key of Curve25519, and the tag of an empty payload
	identitySize = 8
	claimSize    = 4 + identitySize // rank, identity
	verdictSize  = 1
	tagSize      = 16
)

// KeySize is the size of the key of both sides, in bytes.
const KeySize = 32

// SecretName is the purpose of the run's secret that is the key of peer links: see
// signal.Dir.Secret.
const SecretName = "peer link"

const (
	// strangerTime is how long a connection may take until the other side has said something that
	// only a daemon of some run says.
	strangerTime = 2 * time.Second
	// busyTime is how long the rest of the handshake may take then: if thousands connect at once to
	// a head without a free processor, each of them takes longer, but none has to begin again.
	busyTime = 10 * time.Second
)

// What the head's verdict on a worker may be.
const (
	welcome byte = iota
	taken        // another daemon of this rank is connected
)

type identity [identitySize]byte

// claim is the rank and the identity of a worker, as the worker states them.
type claim [claimSize]byte

func claimOf(rank uint32, self identity) (c claim) {
	binary.BigEndian.PutUint32(c[:], rank)
	copy(c[4:], self[:])
	return c
}

func (c claim) rank() uint32       { return binary.BigEndian.Uint32(c[:]) }
func (c claim) identity() identity { return identity(c[4:]) }

func draw(into []byte) { _, _ = rand.Read(into) } // it never fails: see crypto/rand

// ephemeral is Curve25519 for one handshake: with the key of which it keeps more than the library
// does, it multiplies twice and not three times.
type ephemeral struct {
	noise.DHFunc
	key *ecdh.PrivateKey // nil before it is made, and after its use
}

// GenerateKeypair implements noise.DHFunc. The private key stays here.
func (e *ephemeral) GenerateKeypair(io.Reader) (pair noise.DHKey, err error) {
	if e.key, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
		return pair, err
	}
	return noise.DHKey{Public: e.key.PublicKey().Bytes()}, nil
}

// DH implements noise.DHFunc for the pair that was generated, once.
func (e *ephemeral) DH(_, public []byte) ([]byte, error) {
	theirs, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	key := e.key
	e.key = nil
	return key.ECDH(theirs)
}

// newHandshake returns the state of one side's handshake.
func newHandshake(key []byte, initiator bool) (*noise.HandshakeState, error) {
	if len(key) != KeySize { // without a key the library leaves out the proof of it
		return nil, fmt.Errorf("cannot connect with a key of %d bytes: it must have %d", len(key), KeySize)
	}
	// ChaCha20-Poly1305 keeps 32 bytes for each direction of a connection, AES-GCM about a
	// kilobyte.
	suite := noise.NewCipherSuite(&ephemeral{DHFunc: noise.DH25519}, noise.CipherChaChaPoly, noise.HashSHA256)
	return noise.NewHandshakeState(noise.Config{
		CipherSuite: suite, Pattern: noise.HandshakeNN, Initiator: initiator, Prologue: []byte(preface), PresharedKey: key,
	})
}

// examine is the head's side up to its verdict. It returns the worker's claim, which is proven, and
// the connection with the keys.
func examine(conn net.Conn, key []byte) (c claim, sealed *secureConn, err error) {
	if err := conn.SetDeadline(time.Now().Add(strangerTime)); err != nil {
		return c, nil, err
	}
	if _, err := conn.Write([]byte(preface)); err != nil {
		return c, nil, err
	}
	var first [messageSize]byte
	if err := hear(conn); err != nil {
		return c, nil, err
	}
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return c, nil, err
	}
	state, err := newHandshake(key, false)
	if err != nil {
		return c, nil, err
	}
	if _, _, _, err := state.ReadMessage(nil, first[:]); err != nil {
		return c, nil, errWrongKey
	}
	if err := conn.SetDeadline(time.Now().Add(busyTime)); err != nil {
		return c, nil, err
	}
	answer, receives, sends, err := state.WriteMessage(nil, nil)
	if err != nil {
		return c, nil, err
	}
	if _, err := conn.Write(answer); err != nil {
		return c, nil, err
	}
	sealed = &secureConn{Conn: conn, sends: sends, receives: receives}
	return c, sealed, sealed.readFixed(c[:])
}

// pronounce sends the head's verdict to the worker, and ends the time limit of the handshake.
func pronounce(conn *secureConn, verdict byte) error {
	if err := conn.writeFixed(verdict); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// introduce is the worker's side. It returns errTaken if that is the head's verdict.
func introduce(conn net.Conn, key []byte, rank int, self identity) (*secureConn, error) {
	if err := conn.SetDeadline(time.Now().Add(strangerTime)); err != nil {
		return nil, err
	}
	state, err := newHandshake(key, true)
	if err != nil {
		return nil, err
	}
	first, _, _, err := state.WriteMessage([]byte(preface), nil)
	if err != nil {
		return nil, err
	}
	// A stranger may have said something and closed the connection: what it said counts, not that
	// this fails then.
	_, _ = conn.Write(first)
	var answer [messageSize]byte
	if err := hear(conn); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(busyTime)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return nil, err
	}
	_, sends, receives, err := state.ReadMessage(nil, answer[:])
	if err != nil {
		return nil, errWrongKey
	}
	sealed := &secureConn{Conn: conn, sends: sends, receives: receives}
	c := claimOf(uint32(rank), self)
	if err := sealed.writeFixed(c[:]...); err != nil {
		return nil, err
	}
	var verdict [verdictSize]byte
	if err := sealed.readFixed(verdict[:]); err != nil {
		return nil, err
	}
	switch verdict[0] {
	case welcome:
		return sealed, conn.SetDeadline(time.Time{})
	case taken:
		return nil, errTaken
	default:
		return nil, fmt.Errorf("cannot use the head's verdict %d: it is not known", verdict[0])
	}
}

// hear reads the preface.
func hear(conn net.Conn) error {
	var opening [len(preface)]byte
	if _, err := io.ReadFull(conn, opening[:]); err != nil {
		return err
	}
	if string(opening[:]) != preface {
		return errGarbage
	}
	return nil
}

// IsStranger reports whether err means that the other side is no daemon of this run.
func IsStranger(err error) bool {
	_, is := errors.AsType[*stranger](err)
	return is
}
