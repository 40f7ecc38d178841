package pmi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// rrunTimeout limits every wait of the tests.
const rrunTimeout = 30 * time.Second

// rrunTeam is a server on each node of a job.
type rrunTeam struct {
	*hall
	t       *testing.T
	job     *Job
	servers []*RrunServer
	linkErr error // the reason why nodes cannot reach the head
}

// serveRrun starts a server on each node of a job whose ranks are on the given nodes.
func serveRrun(t *testing.T, nodes ...int) *rrunTeam {
	t.Helper()
	job := &Job{Name: "job.secret", Hosts: []string{"n0", "n1", "n2"}, Nodes: nodes}
	m := &rrunTeam{hall: newHall(), t: t, job: job}
	m.jobs[job.Name] = job
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for node := range job.Hosts {
		server, err := ListenRrun(Handlers{Node: node, Peers: m.hall,
			AwaitLink: func(context.Context, ProcID) error { return m.linkErr }})
		if err != nil {
			t.Fatal(err)
		}
		server.AddJob(job)
		running.Go(func() { server.Run(ctx) })
		m.servers = append(m.servers, server)
	}
	return m
}

// program is a connection to a server.
type program struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// connect connects to the server of a node without authentication.
func (m *rrunTeam) connect(node int) *program {
	m.t.Helper()
	conn, err := net.Dial("tcp", m.servers[node].listener.Addr().String())
	if err != nil {
		m.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(rrunTimeout))
	m.t.Cleanup(func() { _ = conn.Close() })
	return &program{m.t, conn, bufio.NewReader(conn)}
}

// rank connects as a rank, with the variables that it gets.
func (m *rrunTeam) rank(rank int) *program {
	m.t.Helper()
	node := m.job.Nodes[rank]
	env := m.servers[node].RankEnviron(ProcID{Job: m.job.Name, Rank: rank})
	p := m.connect(node)
	p.expect(fmt.Sprintf("AUTH rank=%s nranks=%s token=%s\n", env["RRUN_RANK"], env["RRUN_NRANKS"],
		env["RRUN_SOCKET_TOKEN"]), "OK\n")
	return p
}

func (p *program) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.conn, text); err != nil {
		p.t.Errorf("cannot send %.80q: %v", text, err)
	}
}

// receive verifies the next bytes that the server sends.
func (p *program) receive(want string) {
	p.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(p.in, got)
	if string(got[:n]) != want {
		rest, _ := p.in.Peek(p.in.Buffered())
		p.t.Errorf("received %.200q and then %.200q, %v; want %.200q", got[:n], rest, err, want)
	}
}

func (p *program) expect(request, response string) {
	p.t.Helper()
	p.send(request)
	p.receive(response)
}

// expectError verifies that a request fails with a text.
func (p *program) expectError(request, text string) {
	p.t.Helper()
	p.send(request)
	line, err := p.in.ReadString('\n')
	if !strings.HasPrefix(line, "ERROR ") || !strings.Contains(line, text) {
		p.t.Errorf("%.80q is answered by %.200q, %v; want an error with %q", request, line, err, text)
	}
}

// expectEnd verifies that the server closes the connection.
func (p *program) expectEnd() {
	p.t.Helper()
	if rest, err := io.ReadAll(p.in); err != nil && !strings.Contains(err.Error(), "reset by peer") {
		p.t.Errorf("the connection is still open: %q, %v", rest, err)
	}
}
