package ray

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// fakeGCS returns recorded answers of a real GCS, by method.
type fakeGCS struct {
	replies map[string][]byte
	token   string // required if not empty
	silent  bool   // accepts calls and never answers
}

// serve starts it and returns its address.
func (f fakeGCS) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(f.handle))
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		// It may be stopped before it serves.
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func (f fakeGCS) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	if f.silent {
		<-stream.Context().Done()
		return nil
	}
	md, _ := metadata.FromIncomingContext(stream.Context())
	if f.token != "" && strings.Join(md.Get("authorization"), "") != "Bearer "+f.token {
		return status.Error(codes.Unauthenticated, "InvalidAuthToken: Authentication token is missing or incorrect")
	}
	reply, known := f.replies[method]
	if !known {
		return status.Error(codes.Unimplemented, method)
	}
	return stream.SendMsg(&reply)
}

func recordedGCS(t *testing.T, table string) fakeGCS {
	return fakeGCS{replies: map[string][]byte{
		healthMethod:   recorded(t, "health"),
		kvGetMethod:    recorded(t, "session"),
		nodeInfoMethod: recorded(t, table),
	}}
}

func TestGCSClient(t *testing.T) {
	// This runs last, after server and client are closed.
	t.Cleanup(func() { goleak.VerifyNone(t) })
	fake := recordedGCS(t, "alive")
	fake.token = "0123"
	gcs := gcsServer{fake.serve(t), fake.token}
	for _, token := range []string{"4567", ""} {
		_, err := gcsServer{gcs.address, token}.nodeTable(t.Context())
		if err == nil || !strings.Contains(err.Error(), "denied") {
			t.Errorf("with the token %q: %v", token, err)
		}
	}
	if err := gcs.checkHealth(t.Context()); err != nil {
		t.Error(err)
	}
	if name, err := gcs.sessionName(t.Context()); err != nil || !strings.HasPrefix(name, "session_20") {
		t.Errorf("the session is %q, %v", name, err)
	}
	if nodes, err := gcs.nodeTable(t.Context()); err != nil || len(nodes) != 3 {
		t.Errorf("the nodes are %v, %v", nodes, err)
	}
}

func TestGCSClientFails(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	refused := recordedGCS(t, "alive")
	refused.replies[kvGetMethod] = recorded(t, "nokey")
	refused.replies[nodeInfoMethod] = []byte("no such message")
	refused.replies[healthMethod] = []byte{8, 2}
	tests := []struct {
		name, address string
	}{
		{"nobody there", closed.Addr().String()},
		{"never answers", fakeGCS{silent: true}.serve(t)},
		{"knows no such calls", fakeGCS{}.serve(t)},
		{"answers what can't be used", refused.serve(t)},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			gcs := gcsServer{address: tc.address}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := gcs.checkHealth(ctx); err == nil {
				t.Error("it is well")
			}
			if name, err := gcs.sessionName(ctx); err == nil {
				t.Errorf("it has the session %q", name)
			}
			if nodes, err := gcs.nodeTable(ctx); err == nil {
				t.Errorf("it has the nodes %v", nodes)
			}
		})
	}
}
