package ray

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of fields below are those of Ray's src/ray/protobuf/gcs.proto and gcs_service.proto.
// They are fixed for as long as Ray wants its own versions to understand each other.

type tableEntry struct {
	Name        string // the value of --node-name
	Host        string
	Address     string
	Port        int // the raylet's
	Alive       bool
	Resources   map[string]float64
	DeathReason string // empty for live nodes
	StartedMS   uint64 // by the node's own clock
}

func compareNameAndStart(a, b tableEntry) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.StartedMS, b.StartedMS))
}

var errInvalidMessage = errors.New("not a protocol buffer")

// protoField is a field of a message. It has data or a value, according to its type.
type protoField struct {
	number protowire.Number
	data   []byte
	value  uint64
}

// eachField calls take for each field of a message, until it returns an error.
func eachField(b []byte, take func(protoField) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errInvalidMessage
		}
		b = b[n:]
		field := protoField{number: number}
		switch kind {
		case protowire.BytesType:
			field.data, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			field.value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			field.value, n = protowire.ConsumeFixed64(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return errInvalidMessage
		}
		b = b[n:]
		if err := take(field); err != nil {
			return err
		}
	}
	return nil
}

// eachReplyField is like eachField for a reply, whose first field is its status.
func eachReplyField(b []byte, take func(protoField) error) error {
	return eachField(b, func(f protoField) error {
		if f.number == 1 {
			return parseStatus(f.data)
		}
		return take(f)
	})
}

// lastFields returns the last field of each of the first numbers, for a message without repeated
// fields.
func lastFields(b []byte) (fields [4]protoField, err error) {
	err = eachField(b, func(f protoField) error {
		if int(f.number) < len(fields) {
			fields[f.number] = f
		}
		return nil
	})
	return fields, err
}

func parseStatus(b []byte) error {
	fields, err := lastFields(b)
	if code := int32(fields[1].value); err == nil && code != 0 {
		err = fmt.Errorf("%s (code %d)", shortenText(fields[2].data), code)
	}
	return err
}

func appendBytes[T string | []byte](message []byte, number protowire.Number, data T) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), []byte(data))
}

func newSessionRequest() []byte {
	return appendBytes(appendBytes(nil, 1, "session_name"), 2, "session")
}

// parseSession returns the session's name, or an error if the GCS has none yet.
func parseSession(b []byte) (name string, err error) {
	err = eachReplyField(b, func(f protoField) error {
		if f.number == 2 {
			name = string(f.data)
		}
		return nil
	})
	if err == nil && name == "" {
		err = errors.New("it has no session yet")
	}
	return name, err
}

// newNodesRequest returns a request for all nodes, or for those with these names. A Ray without
// selectors returns all nodes.
func newNodesRequest(names []string) (request []byte) {
	for _, name := range names {
		request = appendBytes(request, 2, appendBytes(nil, 2, name))
	}
	return request
}

// maxTableNodes is the maximum size of the node table. A node usually has 600 bytes, so a reply
// cannot contain more, but an empty node has only two bytes.
const maxTableNodes = gcsReplyLimit / 512

// parseNodesReply returns the node table, sorted by name and then by start. The GCS keeps dead
// nodes for a while.
func parseNodesReply(b []byte) (nodes []tableEntry, err error) {
	err = eachReplyField(b, func(f protoField) error {
		switch {
		case f.number != 2:
			return nil
		case len(nodes) == maxTableNodes:
			return fmt.Errorf("more than %d nodes", maxTableNodes)
		}
		node, err := parseNode(f.data)
		nodes = append(nodes, node)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(nodes, compareNameAndStart)
	return nodes, nil
}

func parseNode(b []byte) (tableEntry, error) {
	node := tableEntry{Alive: true, Resources: map[string]float64{}}
	err := eachField(b, func(f protoField) error {
		switch f.number {
		case 2:
			node.Address = shortenText(f.data)
		case 5:
			node.Port = int(int32(f.value))
		case 7:
			node.Alive = f.value == 0
		case 8:
			node.Host = shortenText(f.data)
		case 11:
			return addResource(node.Resources, f.data)
		case 12:
			node.Name = shortenText(f.data)
		case 23:
			node.StartedMS = f.value
		case 29:
			death, err := lastFields(f.data)
			node.DeathReason = shortenText(death[2].data)
			return err
		}
		return nil
	})
	return node, err
}

// addResource adds an entry of the map of a node's resources.
func addResource(resources map[string]float64, entry []byte) error {
	fields, err := lastFields(entry)
	resources[shortenText(fields[1].data)] = math.Float64frombits(fields[2].value)
	return err
}

func shortenText(text []byte) string {
	const longest = 1 << 10
	return strings.ToValidUTF8(string(text[:min(len(text), longest)]), "�")
}

// parseHealth returns no error if the response of a health check is SERVING.
func parseHealth(b []byte) (state grpc_health_v1.HealthCheckResponse_ServingStatus, err error) {
	fields, err := lastFields(b)
	state = grpc_health_v1.HealthCheckResponse_ServingStatus(fields[1].value)
	if err == nil && state != grpc_health_v1.HealthCheckResponse_SERVING {
		err = fmt.Errorf("its health state is %d, expected 1 (SERVING)", state)
	}
	return state, err
}
