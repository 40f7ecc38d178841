package ray

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
)

// Strangers asks the GCS for its nodes as a stranger would and tells of it if it answers;
// then it counts the calls that the GCS refuses.
func (r Cluster) Strangers(ctx context.Context, head framework.Node, endpoint framework.Endpoint, tell func(sentence string)) {
	if authToken(head.Environ) == "" {
		return // it was asked for
	}
	err := asking(endpoint.Address, "", func(gcs *gcsClient) error {
		_, err := gcs.nodes(ctx, "none")
		return err
	})
	if err == nil {
		tell("everybody who reaches Ray at " + endpoint.Address + " can run programs as you: this Ray asks for no token, which Ray 2.52 and later do")
		return
	}
	heedRefusals(ctx, func(ctx context.Context) (int, error) { return refusals(ctx, head) }, func(n int) {
		tell(fmt.Sprintf("somebody tries to reach Ray at %s without its token: %d calls were refused so far", endpoint.Address, n))
	})
}

// refusalPace is the pause between two counts: Ray's agent takes some 25 ms for one.
const refusalPace = 15 * time.Second

// heedRefusals tells, until ctx ends, how many calls were refused: when there are some,
// and each time that there are twice as many. A call that is being answered counts, too,
// and is over by the next count: what two counts agree on was refused. A count that fails
// tells nothing.
func heedRefusals(ctx context.Context, count func(context.Context) (int, error), tell func(n int)) {
	before, told := 0, 0
	for pause.For(ctx, refusalPace) {
		now, err := count(ctx)
		if err != nil {
			continue
		}
		if n := min(before, now); n > 0 && n >= 2*told {
			tell(n)
			told = n
		}
		before = now
	}
}

// refusals returns how many calls of those with which a client begins the GCS has not
// handled. It writes down nowhere whom it has refused, but its metrics tell how many:
// the head's agent has them.
func refusals(ctx context.Context, head framework.Node) (int, error) {
	port, err := pause.Bounded(ctx, 0, func() (string, error) { return metricsPort(head.TempDir) }) // its disk may hang
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(head.Address, port)+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	// Without a proxy, which is for the world outside.
	client := http.Client{Transport: &http.Transport{DialContext: health.Dial, DisableKeepAlives: true}, Timeout: gcsCallTimeout}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	return unhandled(io.LimitReader(response.Body, metricsLimit))
}

// metricsPort returns where the agent of the node that started last in tempDir has its
// metrics, as it has noted in its session's directory.
func metricsPort(tempDir string) (string, error) {
	notes, _ := filepath.Glob(filepath.Join(tempDir, "session_latest", "metrics_export_port_*")) // the pattern is a constant
	if len(notes) == 0 {
		return "", errors.New("this Ray notes no port of its metrics")
	}
	port, err := os.ReadFile(notes[0])
	return strings.TrimSpace(string(port)), err
}

// metricsLimit bounds, in bytes, what is read of an agent's metrics: a quarter of a
// megabyte at first.
const metricsLimit = 64 << 20

// unhandled reads of Prometheus' text how many calls of GetClusterId, the first of each
// client, have come to the GCS, and how many it has handled; it returns the difference.
func unhandled(metrics io.Reader) (int, error) {
	const ofGCS, method = `Component="gcs_server"`, `Method="NodeInfoGcsService.grpc_server.GetClusterId"`
	calls := map[string]float64{"ray_grpc_server_req_new_total": -1, "ray_grpc_server_req_handling_total": -1}
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		if _, wanted := calls[name]; !wanted || !strings.Contains(rest, ofGCS) || !strings.Contains(rest, method) {
			continue
		}
		n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read Ray's metric %s: %v", name, err)
		}
		calls[name] = n
	}
	come, handled := calls["ray_grpc_server_req_new_total"], calls["ray_grpc_server_req_handling_total"]
	if err := lines.Err(); err != nil || come < 0 {
		return 0, errors.Join(err, errors.New("cannot find the calls of the GCS among Ray's metrics"))
	}
	return int(come - max(handled, 0)), nil
}
