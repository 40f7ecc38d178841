package ray

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
)

// Who is told of an open cluster did not ask for one.
func TestRayOpen(t *testing.T) {
	for _, tc := range []struct {
		name         string
		asked, given string // the token that the GCS asks for, and what the head has
		open         bool
	}{
		{"it asks for the token", "0123", "0123", false},
		{"it is too old to ask", "", "0123", true},
		{"nobody wants a token", "", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake := recordedGCS(t, "alive")
			fake.token = tc.asked
			address := fake.serve(t)
			node := testNode(t, 0)
			if tc.given != "" {
				node.Environ = append(node.Environ, "RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN="+tc.given)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if !tc.open { // what is refused is counted until then
				time.AfterFunc(time.Second, cancel)
			}
			said := ""
			Cluster{}.Strangers(ctx, node, framework.Endpoint{Address: address}, func(sentence string) { said += sentence })
			if open := strings.HasPrefix(said, "everybody who reaches Ray at "+address); open != tc.open || !open && said != "" {
				t.Errorf("it says %q", said)
			}
		})
	}
}

func TestHeedRefusals(t *testing.T) {
	const fails = -1
	for _, tc := range []struct {
		name   string
		counts []int
		want   []int
	}{
		{"nobody is refused", []int{0, 0, 0}, nil},
		{"a call is under way", []int{0, 3, 0, 2}, nil},
		{"some are refused", []int{0, 7, 7, 7}, []int{7}},
		{"and one is under way besides", []int{0, 8, 7, 7}, []int{7}},
		{"ever more", []int{4, 10, 19, 30, 40, 40}, []int{4, 10, 30}},
		{"not all counts can be made", []int{fails, 5, fails, 5, fails, 9, 10}, []int{5}},
		{"a GCS that counts anew", []int{5, 5, 0, 0, 5}, []int{5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var told []int
				at := 0
				heedRefusals(ctx, func(context.Context) (int, error) {
					if at++; at == len(tc.counts) {
						cancel()
					}
					if n := tc.counts[at-1]; n != fails {
						return n, nil
					}
					return 0, errors.New("no answer")
				}, func(n int) { told = append(told, n) })
				if diff := cmp.Diff(tc.want, told); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// The metrics are those of Ray 2.60.0, of 24 calls that had the token and 100 that had not.
func TestRefusals(t *testing.T) {
	recorded, err := os.ReadFile(filepath.Join("testdata", "ray-2.60.0-metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	const come = `ray_grpc_server_req_new_total{Component="gcs_server",Method="NodeInfoGcsService.grpc_server.GetClusterId"} `
	for _, tc := range []struct {
		name, metrics string
		want          int // -1: it can't tell
	}{
		{"recorded", string(recorded), 100},
		{"none was handled", come + "3\n", 3},
		{"another component's", strings.ReplaceAll(come, "gcs_server", "raylet") + "3\n", -1},
		{"another method's", strings.ReplaceAll(come, "GetClusterId", "CheckAlive") + "3\n", -1},
		{"no number", come + "many\n", -1},
		{"nothing", "", -1},
		{"no metrics", "<html>\n", -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/metrics" {
					_, _ = io.WriteString(w, tc.metrics)
				}
			}))
			defer agent.Close()
			node := testNode(t, 0)
			node.TempDir = t.TempDir()
			if _, err := refusals(t.Context(), node); err == nil {
				t.Error("it counts where no port is noted")
			}
			host, port, _ := net.SplitHostPort(agent.Listener.Addr().String())
			node.Address = host
			session := filepath.Join(node.TempDir, "session_latest")
			if err := errors.Join(os.Mkdir(session, 0o700), os.WriteFile(filepath.Join(session, "metrics_export_port_4145"), []byte(port), 0o600)); err != nil {
				t.Fatal(err)
			}
			n, err := refusals(t.Context(), node)
			if (err != nil) != (tc.want < 0) || err == nil && n != tc.want {
				t.Errorf("it counts %d (%v), want %d", n, err, tc.want)
			}
		})
	}
}
