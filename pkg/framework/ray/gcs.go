package ray

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bringupd/bringupd/pkg/health"
)

const (
	// gcsCallTimeout is the timeout of a call, unless the context ends earlier.
	gcsCallTimeout = 5 * time.Second
	// gcsReplyLimit is the maximum size of a response in bytes: a node needs about 600, and the GCS
	// keeps a thousand dead ones.
	gcsReplyLimit = 64 << 20
)

// errGCSDenied is wrapped by the errors of calls that were refused because of a missing or wrong
// token. Another call would not help.
var errGCSDenied = errors.New("access denied by the GCS")

// gcsClient is a client of Ray's GCS, which runs on the head.
type gcsClient struct {
	address string
	token   string
	conn    *grpc.ClientConn
}

// dialGCS returns a client for the GCS, or for a raylet, at address. It does not connect yet. token
// is the cluster's token, if it has one. The caller must close the client.
func dialGCS(address, token string) (*gcsClient, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// On this node the token is sent only to users of the job.
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return health.DialTrusted(ctx, "tcp", address)
		}),
		// Sites set http_proxy for external addresses; Ray itself ignores it, too.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6,
				Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: gcsCallTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(gcsCodec{}), grpc.MaxCallRecvMsgSize(gcsReplyLimit)),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s as the address of Ray's GCS: %v", address, err)
	}
	return &gcsClient{address: address, token: token, conn: conn}, nil
}

// withGCSClient calls ask with a client for the GCS, or the raylet, at address.
func withGCSClient(address, token string, ask func(*gcsClient) error) error {
	client, err := dialGCS(address, token)
	if err != nil {
		return err
	}
	defer func() { _ = client.conn.Close() }()
	return ask(client)
}

// checkHealth returns nil if the server at the address answers its health check with SERVING. That
// proves that it is a Ray server, but not that it belongs to this run.
func (c *gcsClient) checkHealth(ctx context.Context) error {
	_, err := callAndParse(ctx, c, "cannot verify that Ray at %s is healthy",
		grpc_health_v1.Health_Check_FullMethodName, &grpc_health_v1.HealthCheckRequest{}, parseHealth)
	return err
}

// sessionName returns the name of the session to which the GCS belongs. It fails until ray start
// has set it, a moment after the start of the GCS.
func (c *gcsClient) sessionName(ctx context.Context) (string, error) {
	request := &InternalKVGetRequest{Namespace: []byte("session"), Key: []byte("session_name")}
	return callAndParse(ctx, c, "cannot get the session's name from Ray's GCS at %s", kvGetMethod,
		request, parseSession)
}

// nodeTable returns the node table, or its entries with these names: one request for all nodes, or
// a small one per node.
func (c *gcsClient) nodeTable(ctx context.Context, names ...string) ([]tableEntry, error) {
	return callAndParse(ctx, c, "cannot get the node table from Ray's GCS at %s", nodeInfoMethod,
		newNodesRequest(names), parseNodesReply)
}

// callAndParse makes a call and returns the parsed response. failed is the format of the error's
// beginning, with a place for the address.
func callAndParse[T any](ctx context.Context, c *gcsClient, failed, method string,
	request proto.Message, parse func([]byte) (T, error)) (value T, err error) {
	reply, err := c.invokeMethod(ctx, method, request)
	if err == nil {
		value, err = parse(reply)
	}
	if err != nil {
		err = fmt.Errorf(failed+": %w", c.address, err)
	}
	return value, err
}

func (c *gcsClient) invokeMethod(ctx context.Context, method string, request proto.Message) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, gcsCallTimeout)
	defer cancel()
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	var reply []byte
	err := c.conn.Invoke(ctx, method, request, &reply)
	answer := status.Convert(err)
	switch answer.Code() {
	case codes.OK:
		return reply, nil
	case codes.Unauthenticated:
		return nil, fmt.Errorf("%w: %s; set RAY_AUTH_TOKEN to the cluster's token, or "+
			"RAY_AUTH_MODE=disabled on all nodes", errGCSDenied, answer.Message())
	default:
		return nil, fmt.Errorf("%s: %s", answer.Code(), answer.Message())
	}
}

// gcsCodec encodes messages, and returns a response as bytes, because only the caller knows its
// type.
type gcsCodec struct{}

// Marshal returns the bytes of a message.
func (gcsCodec) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }

// Unmarshal copies data, because the transport reuses its buffer.
func (gcsCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// Name returns the content subtype that a gRPC server expects.
func (gcsCodec) Name() string { return "proto" }
