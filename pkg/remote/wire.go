// Package remote runs commands on other nodes of a run, for what brings up daemons of its own there: an mpirun that is told
// to use bringupd rsh as its rsh. The agent asks its node's daemon by a socket, that daemon asks the head by a connection
// beside its lifeline, and the head has the other node call it, and joins the two. So each command has a connection of its
// own, whose end is the end of either side, and no node connects to any other than the head.
package remote

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// SocketVariable tells the programs of a node where its daemon is asked.
const SocketVariable = "BRINGUPD_RSH_SOCKET"

// NoCode is the code of an agent whose command has none: rsh and ssh have the same.
const NoCode = 255

// request is the first that comes by a connection, as a line.
type request struct {
	Host    string `json:"host,omitempty"`    // as who asks calls it
	Command string `json:"command,omitempty"` // for the shell
	Here    bool   `json:"here,omitempty"`    // it is a node that was summoned, and waits for what it is to run
}

// exit is how a command has ended, or why it has no code.
type exit struct {
	Code   int    `json:"code"`
	Failed string `json:"failed,omitempty"`
}

// What comes back, each as its kind, its length in 32 bits and its bytes; the last is the exit.
const (
	frameOut  byte = 'o'
	frameErr  byte = 'e'
	frameExit byte = 'x'
)

const (
	headerSize = 5
	// longestFrame bounds what is in one, and longestRequest a command: the kernel takes 128 KiB of one argument.
	longestFrame   = 64 << 10
	longestRequest = 1 << 20
)

// ask sends a request.
func ask(conn io.Writer, r request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(line, '\n'))
	return err
}

// asked reads a request. Whoever sends one says nothing after it.
func asked(conn io.Reader) (r request, err error) {
	line, err := bufio.NewReader(io.LimitReader(conn, longestRequest)).ReadBytes('\n')
	if err != nil {
		return r, fmt.Errorf("cannot read what to run: %v", err)
	}
	return r, json.Unmarshal(line, &r)
}

// back is the way back to who has asked. It is safe for concurrent use.
type back struct {
	mu   sync.Mutex
	conn io.Writer
}

func (b *back) send(kind byte, data []byte) error {
	frame := make([]byte, headerSize, headerSize+len(data))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(data)))
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.conn.Write(append(frame, data...))
	return err
}

// end tells how it has ended. Who has gone need not know.
func (b *back) end(e exit) {
	data, _ := json.Marshal(e) // it has nothing that can't be written
	_ = b.send(frameExit, data)
}

// refuse says why nothing is run.
func refuse(conn io.Writer, err error) {
	(&back{conn: conn}).end(exit{Code: NoCode, Failed: err.Error()})
}

// stream is one of the two that a command prints to.
type stream struct {
	back *back
	kind byte
}

// Write passes on what a command has printed. It returns no error: a command whose agent has gone is ended, and must not
// die of a closed pipe before.
func (s stream) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		piece := rest[:min(len(rest), longestFrame)]
		if s.back.send(s.kind, piece) != nil {
			break
		}
		rest = rest[len(piece):]
	}
	return len(data), nil
}

// next reads a frame.
func next(conn io.Reader) (kind byte, data []byte, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(header[1:])
	if length > longestFrame {
		return 0, nil, fmt.Errorf("cannot read a frame of %d bytes: at most %d are accepted", length, longestFrame)
	}
	data = make([]byte, length)
	_, err = io.ReadFull(conn, data)
	return header[0], data, err
}
