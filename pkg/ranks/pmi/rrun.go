package pmi

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// Collective operations of rapidsmpf.
const (
	barrierKind CollectiveKind = "rapidsmpf barrier"
	syncKind    CollectiveKind = "rapidsmpf sync"
)

// Limits of connections.
const (
	// maxStrangers is the maximum number of connections that have not sent a token yet.
	maxStrangers = 256
	authTimeout  = 10 * time.Second
	// maxConnsPerRank is the maximum number of connections per rank of a job on this node. A program
	// usually has one at a time.
	maxConnsPerRank = 16
)

// RrunServer serves the rendezvous protocol of rrun, the launcher of NVIDIA's rapidsmpf, to the ranks
// of one node. rrun itself serves only ranks of its own node. The protocol is that of rapidsmpf 26.06 to
// 26.10 (cpp/src/bootstrap/socket_backend.cpp). Its methods are safe for concurrent use.
type RrunServer struct {
	cfg      Handlers
	listener net.Listener

	mu        sync.Mutex
	jobs      map[string]*jobSpace // jobs with ranks on this node, by name
	strangers []net.Conn           // connections that have not sent a token, the oldest first
}

type jobSpace struct {
	*Job
	token    string
	maxConns int
	conns    rendezvous.Quota
}

// ListenRrun returns a server that listens on a port of the loopback interface, the only address that
// rapidsmpf uses within a node. It accepts connections in [RrunServer.Run].
func ListenRrun(cfg Handlers) (*RrunServer, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot serve rapidsmpf: %w", err)
	}
	return &RrunServer{cfg: cfg, listener: listener, jobs: make(map[string]*jobSpace)}, nil
}

// Run serves the ranks until ctx ends. Then it closes the listener and all connections.
func (s *RrunServer) Run(ctx context.Context) { peerlink.ServeLocal(ctx, s.listener, s.serveConn) }

// AddJob serves a job's ranks on this node.
func (s *RrunServer) AddJob(job *Job) {
	local := len(job.LocalRanks(s.cfg.Node))
	if local == 0 {
		return
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails: see crypto/rand
	space := &jobSpace{Job: job, token: hex.EncodeToString(secret[:]), maxConns: maxConnsPerRank * local}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[job.Name] = space
}

// RemoveJob stops accepting connections of a job that has ended.
func (s *RrunServer) RemoveJob(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, job)
}

// RankEnviron returns the environment variables with which a rank finds the server.
func (s *RrunServer) RankEnviron(rank ProcID) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	space := s.jobs[rank.Job]
	if space == nil {
		return nil
	}
	return map[string]string{
		"RRUN_RANK": strconv.Itoa(rank.Rank), "RRUN_NRANKS": strconv.Itoa(len(space.Nodes)),
		"RRUN_SOCKET_ADDR": s.listener.Addr().String(), "RRUN_SOCKET_TOKEN": space.token,
	}
}

// serveConn serves a connection until it or ctx ends, and closes it.
func (s *RrunServer) serveConn(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	// Until a connection has sent a token, it has a deadline and may be closed for another one.
	s.addStranger(conn)
	_ = conn.SetReadDeadline(time.Now().Add(authTimeout))
	in := bufio.NewReaderSize(conn, maxRrunLine)
	space, rank, err := s.authenticateRank(in)
	s.removeStranger(conn)
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil {
		_, _ = conn.Write(errorResponse(err))
		return
	}
	defer space.conns.Release(1, 0)
	if err := s.cfg.AwaitLink(ctx, rank); err != nil {
		_, _ = conn.Write(errorResponse(err))
		return
	}
	if _, err := conn.Write(okResponse); err != nil {
		return
	}
	session := &rankSession{space: space, peers: s.cfg.Peers, rank: rank, conn: conn, in: in}
	session.serve(ctx)
}

// addStranger records a connection that has not sent a token yet. If there are too many, it closes
// the oldest one, which is not a rank's: a rank sends its token at once.
func (s *RrunServer) addStranger(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strangers = append(s.strangers, conn); len(s.strangers) > maxStrangers {
		_ = s.strangers[0].Close()
		s.strangers = slices.Delete(s.strangers, 0, 1)
	}
}

func (s *RrunServer) removeStranger(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strangers = slices.DeleteFunc(s.strangers, func(c net.Conn) bool { return c == conn })
}

// authenticateRank reads the first line of a connection, and reserves a connection of the job that
// its token belongs to. It returns the rank that has connected.
func (s *RrunServer) authenticateRank(in *bufio.Reader) (*jobSpace, ProcID, error) {
	line, err := readRrunLine(in)
	if err != nil {
		return nil, ProcID{}, err
	}
	var rank, ranks int
	var token string
	if _, err := fmt.Sscanf(line, "AUTH rank=%d nranks=%d token=%s", &rank, &ranks, &token); err != nil {
		return nil, ProcID{}, errors.New("invalid AUTH")
	}
	space := s.findJob(token)
	switch {
	case space == nil:
		return nil, ProcID{}, errors.New("bad token")
	case ranks != len(space.Nodes) || rank < 0 || rank >= ranks || space.Nodes[rank] != s.cfg.Node:
		return nil, ProcID{}, fmt.Errorf("invalid rank or nranks: rank %d of %d is not a rank of this node",
			rank, ranks)
	case !space.conns.Reserve(0, space.maxConns, 0):
		return nil, ProcID{}, fmt.Errorf("the ranks of this node already have %d connections, the maximum",
			space.maxConns)
	}
	return space, ProcID{Job: space.Name, Rank: rank}, nil
}

// findJob returns the job that a token belongs to, or nil. The time that it takes does not depend
// on the token.
func (s *RrunServer) findJob(token string) (found *jobSpace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, space := range s.jobs {
		if subtle.ConstantTimeCompare([]byte(token), []byte(space.token)) == 1 {
			found = space
		}
	}
	return found
}
