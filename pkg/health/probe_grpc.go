package health

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// tryGRPC queries the standard health service about a service or, if service is empty, about the
// server as a whole.
func tryGRPC(ctx context.Context, address, service string) error {
	// passthrough leaves name resolution to the dialer, as in the other probes.
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn,
			error) {
			return DialTrusted(ctx, "tcp", address)
		}),
		grpc.WithNoProxy(), grpc.WithUserAgent(probeUserAgent), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHeaderBytes)))
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %v", address, err)
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	name := "the server"
	if service != "" {
		name = fmt.Sprintf("service %q", service)
	}
	switch code := status.Code(err); {
	case err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING:
		return nil
	case err == nil:
		return fmt.Errorf("%s of %s is %s", name, address, answer.GetStatus())
	case code == codes.Unimplemented:
		return fmt.Errorf("%s answers gRPC, and has no health service (grpc.health.v1)", address)
	case code == codes.NotFound:
		return fmt.Errorf("%s has a health service, which does not know %s", address, name)
	case code == codes.DeadlineExceeded, code == codes.Canceled:
		return fmt.Errorf("no response from %s", address)
	default:
		return fmt.Errorf("gRPC %s from %s: %s", code, address, printableExcerpt([]byte(status.Convert(err).Message())))
	}
}
