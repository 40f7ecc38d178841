package dask

import (
	"bytes"
	"crypto/tls"
	"github.com/bringupd/bringupd/pkg/framework"
	"net"
	"testing"
)

// TestDaskCertificate verifies that all nodes derive the same certificate from the same secret and
// accept each other, as server and as client, and that peers with another secret or without one are
// rejected.
func TestDaskCertificate(t *testing.T) {
	config := func(secret string) *tls.Config {
		credentials, err := Cluster{}.NodeCredentials(testNode(0), []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		again, err := Cluster{}.NodeCredentials(testNode(1), []byte(secret))
		if err != nil || !bytes.Equal(credentials.Files[certificateFile], again.Files[certificateFile]) {
			t.Fatalf("another node's is another: %v", err)
		}
		config, err := clientTLSConfig(credentials.Files[certificateFile])
		if err != nil {
			t.Fatal(err)
		}
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, config.RootCAs
		return config
	}
	none := config("one")
	none.Certificates = nil
	for _, tc := range []struct {
		name           string
		server, client *tls.Config
		in             bool
	}{
		{"the same", config("one"), config("one"), true},
		{"another", config("one"), config("two"), false},
		{"none", config("one"), none, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			there, here := net.Pipe()
			server := tls.Server(there, tc.server)
			done := make(chan error, 1)
			go func() {
				done <- server.Handshake()
				_ = there.Close()
			}()
			_ = tls.Client(here, tc.client).Handshake() // only the server's decision matters
			_ = here.Close()
			if err := <-done; (err == nil) != tc.in {
				t.Errorf("it is let in: %v", err)
			}
		})
	}
}

func TestDaskCredentials(t *testing.T) {
	credentials, err := Cluster{}.NodeCredentials(testNode(1), []byte("one"))
	if err != nil || len(credentials.Files) != 1 || len(credentials.Env) != 7 {
		t.Fatalf("got %+v: %v", credentials, err)
	}
	for name, value := range credentials.Env {
		if value != "/tmp/bu-1/dask.pem" {
			t.Errorf("%s=%s", name, value)
		}
	}
	if off, err := (Cluster{Auth: framework.AuthOff}).NodeCredentials(testNode(1),
		[]byte("one")); err != nil || len(off.Files)+len(off.Env) > 0 {
		t.Errorf("with --framework-auth=off: %+v, %v", off, err)
	}
	if _, err := clientTLSConfig([]byte("none")); err == nil {
		t.Error("no certificate is one")
	}
}
