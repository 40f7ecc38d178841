package peerlink

import (
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
// The worker's first message follows its preface, and the head answers it. After that, each side
// sends one encrypted message, by which the other side knows that it has the key and is not a
// replay: the worker sends its claim, and the head its verdict. All sizes are fixed, so that no
// peer can decide how much is read before it has proven itself.
const (
	preface = "bringupd\x03" // the last byte is the version
	// an ephemeral Curve25519 public key, and the tag of an empty payload
	messageSize  = 32 + tagSize
	identitySize = 8
	claimSize    = 4 + identitySize // node index, identity
	verdictSize  = 1
	tagSize      = 16
)

// KeySize is the size of the key of both sides, in bytes.
const KeySize = 32

// SecretName is the name for which signal.Dir.Secret returns the key of peer links.
const SecretName = "peer link"

const (
	// unprovenTimeout is the timeout of a connection until the other side has sent a message that only
	// a daemon of some run sends.
	unprovenTimeout = 2 * time.Second
	// handshakeTimeout is the timeout of the rest of the handshake. If thousands of workers connect at
	// once to a head on a busy machine, each handshake takes longer, but none should fail and start
	// again.
	handshakeTimeout = 10 * time.Second
)

// The head's verdicts on a worker. [verdictAccepted] means that it is accepted.
const (
	verdictAccepted  byte = iota
	verdictDuplicate      // another daemon of this node is connected
)

// identity distinguishes the daemons that claim the same node index. It is random.
type identity [identitySize]byte

// claim is a worker's statement of its node index and its identity.
type claim [claimSize]byte

func newClaim(node uint32, self identity) (c claim) {
	binary.BigEndian.PutUint32(c[:], node)
	copy(c[4:], self[:])
	return c
}

func (c claim) nodeIndex() uint32  { return binary.BigEndian.Uint32(c[:]) }
func (c claim) identity() identity { return identity(c[4:]) }

func fillRandom(into []byte) { _, _ = rand.Read(into) } // crypto/rand never fails

// newHandshake returns the initial state of one side's handshake. The worker is the initiator.
func newHandshake(key []byte, initiator bool) (*noise.HandshakeState, error) {
	if len(key) != KeySize { // without a key the library would skip the proof of it
		return nil, fmt.Errorf("cannot connect with a key of %d bytes: it must have %d", len(key), KeySize)
	}
	// ChaCha20-Poly1305 needs 32 bytes for each direction of a connection, AES-GCM about a kilobyte.
	suite := noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashSHA256)
	return noise.NewHandshakeState(noise.Config{
		CipherSuite: suite, Pattern: noise.HandshakeNN, Initiator: initiator, Prologue: []byte(preface),
		PresharedKey: key,
	})
}

// handshakeAsHead runs the head's side of the handshake up to its verdict. It returns the worker's
// claim, which is proven, and the encrypted connection.
func handshakeAsHead(conn net.Conn, key []byte) (c claim, sealed *secureConn, err error) {
	if err := conn.SetDeadline(time.Now().Add(unprovenTimeout)); err != nil {
		return c, nil, err
	}
	if _, err := conn.Write([]byte(preface)); err != nil {
		return c, nil, err
	}
	var first [messageSize]byte
	if err := readPreface(conn); err != nil {
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
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return c, nil, err
	}
	// The answer proves the same for the head, and yields the keys of the connection.
	answer, receives, sends, err := state.WriteMessage(nil, nil)
	if err != nil {
		return c, nil, err
	}
	if _, err := conn.Write(answer); err != nil {
		return c, nil, err
	}
	// The claim is encrypted with these keys, so that it cannot be a replay.
	sealed = &secureConn{Conn: conn, encrypter: sends, decrypter: receives}
	return c, sealed, sealed.readFixed(c[:])
}

// sendVerdict sends the head's verdict to the worker, and removes the time limit of the handshake.
func sendVerdict(conn *secureConn, verdict byte) error {
	if err := conn.writeFixed(verdict); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// handshakeAsWorker runs the worker's side of the handshake, and returns the encrypted connection.
// It returns errDuplicateDaemon if another daemon of this node is connected.
func handshakeAsWorker(conn net.Conn, key []byte, node int, self identity) (*secureConn, error) {
	if err := conn.SetDeadline(time.Now().Add(unprovenTimeout)); err != nil {
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
	// A server that is not the head may have sent something and closed the connection. The error to
	// report is then about what it sent, and not about this write.
	_, _ = conn.Write(first)
	// Read the preface and the answer, which prove that the other side is the head.
	var answer [messageSize]byte
	if err := readPreface(conn); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return nil, err
	}
	_, sends, receives, err := state.ReadMessage(nil, answer[:])
	if err != nil {
		return nil, errWrongKey
	}
	sealed := &secureConn{Conn: conn, encrypter: sends, decrypter: receives}
	c := newClaim(uint32(node), self)
	if err := sealed.writeFixed(c[:]...); err != nil {
		return nil, err
	}
	var verdict [verdictSize]byte
	if err := sealed.readFixed(verdict[:]); err != nil {
		return nil, err
	}
	switch verdict[0] {
	case verdictAccepted:
		return sealed, conn.SetDeadline(time.Time{})
	case verdictDuplicate:
		return nil, errDuplicateDaemon
	default:
		return nil, fmt.Errorf("cannot use the head's verdict %d: it is not known", verdict[0])
	}
}

// readPreface reads the preface. It returns errWrongProtocol if the other side has sent anything
// else.
func readPreface(conn net.Conn) error {
	var opening [len(preface)]byte
	if _, err := io.ReadFull(conn, opening[:]); err != nil {
		return err
	}
	if string(opening[:]) != preface {
		return errWrongProtocol
	}
	return nil
}

// IsForeignPeer reports whether err means that the other side is not a daemon of this run.
func IsForeignPeer(err error) bool {
	_, is := errors.AsType[*rejection](err)
	return is
}
