// Package rsh runs commands on other nodes of a run, for programs that start their own daemons
// there: an mpirun that uses bringupd rsh instead of rsh. The agent (bringupd rsh) sends a request
// to its node's daemon by a Unix socket. That daemon forwards it to the head by an additional
// connection. The head asks the other node's daemon for a connection, and joins the two. So each
// command has its own connections, which end if either side ends, and no node connects to any node
// other than the head.
package rsh

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// SocketVariable is the environment variable with the path of the daemon's socket, for programs of
// a node.
const SocketVariable = "BRINGUPD_RSH_SOCKET"

// NoCode is the exit code of an agent if the command has none. rsh and ssh use the same.
const NoCode = 255

// request is the first message on a connection. It is one line of JSON.
type request struct {
	Host          string `json:"host,omitempty"`    // the name that the agent gives
	Command       string `json:"command,omitempty"` // a command line for the shell
	AwaitsCommand bool   `json:"here,omitempty"`    // a node opens the connection to receive a command
}

// commandExit describes how a command has ended, or why it has no exit code.
type commandExit struct {
	Code   int    `json:"code"`
	Failed string `json:"failed,omitempty"`
}

// The kinds of frames that a command sends back to its agent. A frame is its kind, the length of
// its data as 32 bits, and the data. The last frame is the exit.
const (
	frameStdout byte = 'o'
	frameStderr byte = 'e'
	frameExit   byte = 'x'
)

const (
	headerSize = 5
	// maxFrameSize is the maximum size of a frame's data, and maxRequestSize that of a request. The
	// kernel accepts at most 128 KiB for one argument.
	maxFrameSize   = 64 << 10
	maxRequestSize = 1 << 20
)

// writeRequest sends a request.
func writeRequest(conn io.Writer, r request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(line, '\n'))
	return err
}

// readRequest reads a request. It may read further than the request, because the sender sends
// nothing after it.
func readRequest(conn io.Reader) (r request, err error) {
	line, err := bufio.NewReader(io.LimitReader(conn, maxRequestSize)).ReadBytes('\n')
	if err != nil {
		return r, fmt.Errorf("cannot read the request: %v", err)
	}
	return r, json.Unmarshal(line, &r)
}

// frameWriter sends frames to the agent. It is safe for concurrent use.
type frameWriter struct {
	mu   sync.Mutex
	conn io.Writer
}

// writeFrame sends one frame.
func (b *frameWriter) writeFrame(kind byte, data []byte) error {
	frame := make([]byte, headerSize, headerSize+len(data))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(data)))
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.conn.Write(append(frame, data...))
	return err
}

// writeExit sends the last frame, with the exit of the command. Errors are ignored, because the
// agent may have gone.
func (b *frameWriter) writeExit(e commandExit) {
	data, _ := json.Marshal(e) // an exit can always be encoded
	_ = b.writeFrame(frameExit, data)
}

// writeRefusal sends the reason why no command runs, as the last frame.
func writeRefusal(conn io.Writer, err error) {
	(&frameWriter{conn: conn}).writeExit(commandExit{Code: NoCode, Failed: err.Error()})
}

// outputStream writes standard output or standard error of a command as frames.
type outputStream struct {
	frames *frameWriter
	kind   byte
}

// Write sends a command's output to the agent. It returns no error: if the agent has gone, the
// daemon ends the command, and the command should not fail earlier because of a closed pipe.
func (s outputStream) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		piece := rest[:min(len(rest), maxFrameSize)]
		if s.frames.writeFrame(s.kind, piece) != nil {
			break
		}
		rest = rest[len(piece):]
	}
	return len(data), nil
}

// readFrame reads one frame.
func readFrame(conn io.Reader) (kind byte, data []byte, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(header[1:])
	if length > maxFrameSize {
		return 0, nil, fmt.Errorf("cannot read a frame of %d bytes: at most %d are accepted", length, maxFrameSize)
	}
	data = make([]byte, length)
	_, err = io.ReadFull(conn, data)
	return header[0], data, err
}
