package ray

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/bringupd/bringupd/test/users"
)

const strangersToken = "0123456789abcdef"

// TestGCSElsewhere is not a test: it is a server that records the token that it receives.
func TestGCSElsewhere(t *testing.T) {
	dir := os.Getenv("RAY_TEST_GCS")
	if dir == "" {
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		return os.WriteFile(filepath.Join(dir, "token"), []byte(strings.Join(md.Get("authorization"), " ")), 0o600)
	}))
	go func() { _ = server.Serve(listener) }()
	// The file is renamed into place, so that it is complete.
	if err := os.WriteFile(filepath.Join(dir, "address-"), []byte(listener.Addr().String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "address-"), filepath.Join(dir, "address")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute) // it is killed when the test ends
}

// TestLookElsewhere is not a test: it checks, as the job's user, whether the GCS is up.
func TestLookElsewhere(t *testing.T) {
	address := os.Getenv("RAY_TEST_LOOK")
	if address == "" {
		return
	}
	err := gcsServer{address, strangersToken}.checkHealth(t.Context())
	t.Log(err)
}

// TestRayTokenForStrangers verifies that the cluster's token is sent to a server of the job's user,
// and never to another user's server that has the head's port.
func TestRayTokenForStrangers(t *testing.T) {
	users.Need(t)
	program := users.Public(t, os.Args[0])
	for _, tc := range []struct {
		name   string
		server users.User
		token  string
		says   string
	}{
		{"the job's own", users.Job, "Bearer " + strangersToken, ""},
		{"a stranger's", users.Stranger, "", "is held by a process of user 64102"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := tc.server.Dir(t)
			server := tc.server.Command(t.Context(), dir, program, "-test.run=^TestGCSElsewhere$")
			server.Env = append(server.Env, "RAY_TEST_GCS="+dir, "GORACE=atexit_sleep_ms=0")
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = server.Cancel(); _ = server.Wait() }()
			var address []byte
			for began := time.Now(); len(address) == 0; time.Sleep(10 * time.Millisecond) {
				if address, _ = os.ReadFile(filepath.Join(dir, "address")); time.Since(began) > 30*time.Second {
					t.Fatal("the server has not noted its address after 30 s")
				}
			}
			look := users.Job.Command(t.Context(), users.Job.Dir(t), program,
				"-test.run=^TestLookElsewhere$", "-test.v")
			look.Env = append(look.Env, "RAY_TEST_LOOK="+string(address), "GORACE=atexit_sleep_ms=0")
			out, err := look.CombinedOutput()
			if err != nil || !strings.Contains(string(out), tc.says) {
				t.Errorf("%v, and it says %s", err, out)
			}
			if token, _ := os.ReadFile(filepath.Join(dir, "token")); string(token) != tc.token {
				t.Errorf("the server has received %q, not %q", token, tc.token)
			}
		})
	}
}
