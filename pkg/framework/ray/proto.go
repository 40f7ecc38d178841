package ray

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

//go:generate go run -C ../../../tools ./genproto ../pkg/framework/ray/gcs.proto

const (
	kvGetMethod    = "/ray.rpc.InternalKVGcsService/InternalKVGet"
	nodeInfoMethod = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
)

// tableEntry is a node in Ray's node table.
type tableEntry struct {
	ID          string // hexadecimal; a raylet that starts again has another one
	Name        string // the value of --node-name
	Host        string
	Address     string
	Port        int // of the raylet
	Alive       bool
	Resources   map[string]float64
	DeathReason string // empty for live nodes
	StartedMS   uint64 // by the node's own clock
}

func compareNameAndStart(a, b tableEntry) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.StartedMS, b.StartedMS), cmp.Compare(a.ID, b.ID))
}

// errInvalidMessage is the error of a message that is truncated or invalid.
var errInvalidMessage = errors.New("not a protocol buffer")

// parseMessage parses a message, and skips fields that are not needed.
func parseMessage(b []byte, into proto.Message) error {
	if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, into) != nil {
		return errInvalidMessage
	}
	return nil
}

// parseSession returns the session's name, or an error if the GCS has none yet.
func parseSession(b []byte) (string, error) {
	var reply InternalKVGetReply
	err := parseReply(b, &reply)
	if err == nil && len(reply.Value) == 0 {
		err = errors.New("it has no session yet")
	}
	return string(reply.Value), err
}

// parseReply parses a reply. A status other than success is an error.
func parseReply(b []byte, into interface {
	proto.Message
	GetStatus() *GcsStatus
}) error {
	err := parseMessage(b, into)
	if status := into.GetStatus(); err == nil && status.GetCode() != 0 {
		err = fmt.Errorf("%s (code %d)", shortenText(status.Message), status.Code)
	}
	return err
}

// newNodesRequest returns a request for all nodes, or for those with these names.
func newNodesRequest(names []string) *GetAllNodeInfoRequest {
	request := &GetAllNodeInfoRequest{}
	for _, name := range names {
		request.NodeSelectors = append(request.NodeSelectors, &GetAllNodeInfoRequest_NodeSelector{NodeName: name})
	}
	return request
}

// maxTableNodes is the maximum size of the node table. A node usually has 600 bytes, so a reply
// cannot contain more, but an empty node has only two bytes.
const maxTableNodes = gcsReplyLimit / 512

// parseNodesReply returns the node table, sorted by name and then by start. The GCS keeps dead
// nodes for a while.
func parseNodesReply(b []byte) ([]tableEntry, error) {
	if countNodes(b) > maxTableNodes {
		return nil, fmt.Errorf("more than %d nodes", maxTableNodes)
	}
	var reply GetAllNodeInfoReply
	if err := parseReply(b, &reply); err != nil {
		return nil, err
	}
	var nodes []tableEntry
	for _, node := range reply.NodeInfoList {
		nodes = append(nodes, tableEntry{
			ID:   hex.EncodeToString(node.NodeId[:min(len(node.NodeId), 64)]),
			Name: shortenText(node.NodeName), Host: shortenText(node.NodeManagerHostname),
			Address: shortenText(node.NodeManagerAddress), Port: int(node.NodeManagerPort),
			Alive:     node.State == GcsNodeInfo_ALIVE,
			Resources: node.ResourcesTotal, DeathReason: formatDeathReason(node.DeathInfo), StartedMS: node.StartTimeMs,
		})
	}
	slices.SortStableFunc(nodes, compareNameAndStart)
	return nodes, nil
}

// countNodes counts the nodes of a reply before any is allocated. If the reply is invalid, parse
// reports it.
func countNodes(b []byte) (count int) {
	for len(b) > 0 {
		field, _, n := protowire.ConsumeField(b)
		if n < 0 {
			break
		}
		if field == 2 {
			count++
		}
		b = b[n:]
	}
	return count
}

// shortenText shortens a text for a message.
func shortenText(text string) string {
	const longest = 1 << 10
	return strings.ToValidUTF8(text[:min(len(text), longest)], "�")
}

// deathReasons are Ray's terms for the reasons of a node's death.
var deathReasons = map[int32]string{
	1: "terminated as requested",
	2: "terminated unexpectedly",
	3: "preempted by the autoscaler",
	4: "idle, terminated by the autoscaler",
}

func formatDeathReason(death *NodeDeathInfo) string {
	kind, message := deathReasons[death.GetReason()], shortenText(death.GetReasonMessage())
	if kind == "" || message == "" {
		return kind + message
	}
	return kind + ": " + message
}

// parseHealth returns no error if the response of a health check is SERVING.
func parseHealth(b []byte) (state grpc_health_v1.HealthCheckResponse_ServingStatus, err error) {
	var reply grpc_health_v1.HealthCheckResponse
	if err := parseMessage(b, &reply); err != nil {
		return 0, err
	}
	if reply.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		err = fmt.Errorf("its health state is %d, expected 1 (SERVING)", reply.Status)
	}
	return reply.Status, err
}
