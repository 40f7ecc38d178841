package ray

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/bringupd/bringupd/pkg/health"
)

const (
	// gcsCallTimeout is the timeout of a call, unless the context ends earlier.
	gcsCallTimeout = 5 * time.Second
	// gcsReplyLimit is the maximum size of a response in bytes: a node needs about 600, and the GCS
	// keeps a thousand dead ones.
	gcsReplyLimit = 64 << 20
)

const (
	kvGetMethod    = "/ray.rpc.InternalKVGcsService/InternalKVGet"
	nodeInfoMethod = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
	healthMethod   = grpc_health_v1.Health_Check_FullMethodName
)

// gcsServer is Ray's GCS, which runs on the head, or a raylet.
type gcsServer struct {
	address string
	token   string // the cluster's token, if it has one
}

// checkHealth returns nil if the server answers its health check with SERVING. That proves that it
// is a Ray server, but not that it belongs to this run.
func (s gcsServer) checkHealth(ctx context.Context) error {
	_, err := callAndParse(ctx, s, "cannot verify that Ray at %s is healthy", healthMethod, nil, parseHealth)
	return err
}

// sessionName returns the name of the session to which the GCS belongs. It fails until ray start
// has set it, a moment after the start of the GCS.
func (s gcsServer) sessionName(ctx context.Context) (string, error) {
	return callAndParse(ctx, s, "cannot get the session's name from Ray's GCS at %s", kvGetMethod,
		newSessionRequest(), parseSession)
}

// nodeTable returns the node table, or its entries with these names: one request for all nodes, or
// a small one per node.
func (s gcsServer) nodeTable(ctx context.Context, names ...string) ([]tableEntry, error) {
	return callAndParse(ctx, s, "cannot get the node table from Ray's GCS at %s", nodeInfoMethod,
		newNodesRequest(names), parseNodesReply)
}

// callAndParse makes a call and returns the parsed response. failed is the format of the error's
// beginning, with a place for the address.
func callAndParse[T any](ctx context.Context, s gcsServer, failed, method string,
	request []byte, parse func([]byte) (T, error)) (value T, err error) {
	reply, err := s.invokeMethod(ctx, method, request)
	if err == nil {
		value, err = parse(reply)
	}
	if err != nil {
		err = fmt.Errorf(failed+": %w", s.address, err)
	}
	return value, err
}

func (s gcsServer) invokeMethod(ctx context.Context, method string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, gcsCallTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+s.address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// On this node the token is sent only to users of the job.
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return health.DialTrusted(ctx, "tcp", address)
		}),
		// Sites set http_proxy for external addresses; Ray itself ignores it, too.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(gcsReplyLimit)),
	)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if s.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.token)
	}
	var reply []byte
	answer := status.Convert(conn.Invoke(ctx, method, &request, &reply))
	switch answer.Code() {
	case codes.OK:
		return reply, nil
	case codes.Unauthenticated:
		return nil, fmt.Errorf("access denied by the GCS: %s; set RAY_AUTH_TOKEN to the cluster's "+
			"token, or RAY_AUTH_MODE=disabled on all nodes", answer.Message())
	default:
		return nil, fmt.Errorf("%s: %s", answer.Code(), answer.Message())
	}
}

// rawCodec passes on messages as bytes.
type rawCodec struct{}

// Marshal returns the bytes of a message.
func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

// Unmarshal copies data, because the transport reuses its buffer.
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// Name returns the content subtype that a gRPC server expects.
func (rawCodec) Name() string { return "proto" }
