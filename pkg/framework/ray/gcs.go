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

	"github.com/bringupd/bringupd/pkg/framework/ray/gcs"
	"github.com/bringupd/bringupd/pkg/health"
)

const (
	// gcsCallTimeout bounds a call whose context doesn't end earlier.
	gcsCallTimeout = 5 * time.Second
	// gcsReplyLimit bounds an answer, in bytes: a node takes some 600, and the
	// GCS keeps a thousand dead ones.
	gcsReplyLimit = 64 << 20
)

// errGCSDenied is wrapped by the errors of calls that were refused for want of
// the cluster's token: asking again will not help.
var errGCSDenied = errors.New("the GCS denies it")

// gcsClient asks Ray's GCS, which runs on the head, what it knows.
type gcsClient struct {
	address string
	token   string
	conn    *grpc.ClientConn
}

// dialGCS returns a client for the GCS, or for a raylet, at address. Nothing is
// sent yet. token is the cluster's where it has one. The caller closes it.
func dialGCS(address, token string) (*gcsClient, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// On this node the token is sent only to the job's own users.
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return health.Dial(ctx, "tcp", address) }),
		// Sites set http_proxy for the world outside; Ray itself goes past it too.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: gcsCallTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(gcsCodec{}), grpc.MaxCallRecvMsgSize(gcsReplyLimit)),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s as the address of Ray's GCS: %v", address, err)
	}
	return &gcsClient{address: address, token: token, conn: conn}, nil
}

// close ends the connection.
func (c *gcsClient) close() error { return c.conn.Close() }

// asking asks the GCS, or the raylet, at address.
func asking(address, token string, ask func(*gcsClient) error) error {
	client, err := dialGCS(address, token)
	if err != nil {
		return err
	}
	defer func() { _ = client.close() }()
	return ask(client)
}

// health returns nil when the server at the address answers its health check
// with SERVING. It proves that a Ray server answers, not that it is ours.
func (c *gcsClient) health(ctx context.Context) error {
	_, err := ask(ctx, c, "cannot see Ray at %s in health", grpc_health_v1.Health_Check_FullMethodName, &grpc_health_v1.HealthCheckRequest{}, parseHealth)
	return err
}

// sessionName returns the name of the session that the GCS belongs to. It fails
// for the first moments of a GCS, until ray start has told it.
func (c *gcsClient) sessionName(ctx context.Context) (string, error) {
	request := &gcs.InternalKVGetRequest{Namespace: []byte("session"), Key: []byte("session_name")}
	return ask(ctx, c, "cannot get the session's name from Ray's GCS at %s", kvGetMethod, request, parseSession)
}

// nodes returns the node table, or its entries of these names: one request for
// N nodes, or one small one a node.
func (c *gcsClient) nodes(ctx context.Context, names ...string) ([]entry, error) {
	return ask(ctx, c, "cannot get the node table from Ray's GCS at %s", nodeInfoMethod, nodesRequest(names), parseNodesReply)
}

// ask makes a call and returns what parse makes of the answer. failed begins the
// error, and has a place for the address.
func ask[T any](ctx context.Context, c *gcsClient, failed, method string, request proto.Message, parse func([]byte) (T, error)) (value T, err error) {
	reply, err := c.call(ctx, method, request)
	if err == nil {
		value, err = parse(reply)
	}
	if err != nil {
		err = fmt.Errorf(failed+": %w", c.address, err)
	}
	return value, err
}

func (c *gcsClient) call(ctx context.Context, method string, request proto.Message) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, gcsCallTimeout)
	defer cancel()
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	var reply []byte
	err := c.conn.Invoke(ctx, method, request, &reply)
	said := status.Convert(err)
	switch said.Code() {
	case codes.OK:
		return reply, nil
	case codes.Unauthenticated:
		return nil, fmt.Errorf("%w: %s; set RAY_AUTH_TOKEN to the cluster's token, or RAY_AUTH_MODE=disabled on all nodes", errGCSDenied, said.Message())
	default:
		return nil, fmt.Errorf("%s: %s", said.Code(), said.Message())
	}
}

// gcsCodec sends messages, and hands an answer over as the bytes that it is: what
// they may be is known to who asked.
type gcsCodec struct{}

// Marshal returns the bytes of a message.
func (gcsCodec) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }

// Unmarshal keeps a copy of data: the transport uses its buffer again.
func (gcsCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// Name is the content subtype that a gRPC server expects.
func (gcsCodec) Name() string { return "proto" }
