package ray

import (
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The few messages of Ray's GCS that are asked for, read and written by hand:
// of some sixty fields a dozen are needed, and their numbers are fixed for as
// long as Ray wants its own versions to understand each other.
const (
	healthCheckMethod = "/grpc.health.v1.Health/Check"
	kvGetMethod       = "/ray.rpc.InternalKVGcsService/InternalKVGet"
	nodeInfoMethod    = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
)

// entry is an entry of Ray's node table.
type entry struct {
	ID          string // hexadecimal; a raylet that starts again has another one
	Name        string // what --node-name said
	Host        string
	Address     string
	Port        int // the raylet's own
	Alive       bool
	Resources   map[string]float64
	IsHead      bool
	DeathReason string // empty for the living
	StartedMS   uint64 // by the node's own clock
}

// protoField is one field of a message: number holds what the four numeric
// wire types carry, bytes what is length-delimited.
type protoField struct {
	id     protowire.Number
	typ    protowire.Type
	number uint64
	bytes  []byte
}

// errProto is what ends a message that is cut off or is none at all.
var errProto = errors.New("not a protocol buffer")

// protoFields yields the fields of a message in order, groups left out; the
// last pair holds the error where the message is broken.
func protoFields(b []byte) iter.Seq2[protoField, error] {
	return func(yield func(protoField, error) bool) {
		for len(b) > 0 {
			field, n := nextField(b)
			if n < 0 {
				yield(protoField{}, errProto)
				return
			}
			b = b[n:]
			if !yield(field, nil) {
				return
			}
		}
	}
}

// nextField returns the first field and its length, which is negative where
// there is none.
func nextField(b []byte) (protoField, int) {
	id, typ, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return protoField{}, tag
	}
	field, n := protoField{id: id, typ: typ}, 0
	switch typ {
	case protowire.VarintType:
		field.number, n = protowire.ConsumeVarint(b[tag:])
	case protowire.Fixed64Type:
		field.number, n = protowire.ConsumeFixed64(b[tag:])
	case protowire.Fixed32Type:
		var short uint32
		short, n = protowire.ConsumeFixed32(b[tag:])
		field.number = uint64(short)
	case protowire.BytesType:
		field.bytes, n = protowire.ConsumeBytes(b[tag:])
	default:
		n = protowire.ConsumeFieldValue(id, typ, b[tag:])
	}
	if n < 0 {
		return protoField{}, n
	}
	return field, tag + n
}

// text returns a string field, cut to what a message may show.
func (f protoField) text() string {
	const longest = 1 << 10
	return strings.ToValidUTF8(string(f.bytes[:min(len(f.bytes), longest)]), "�")
}

// kvGetRequest asks for a key of a namespace.
func kvGetRequest(namespace, key string) []byte {
	b := protowire.AppendTag(nil, 1, protowire.BytesType)
	b = protowire.AppendString(b, key)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendString(b, namespace)
}

// parseKVReply returns the value, or an error where the GCS has none.
func parseKVReply(b []byte) ([]byte, error) {
	var value []byte
	for field, err := range protoFields(b) {
		if err != nil {
			return nil, err
		}
		switch field.id {
		case 1:
			if err := parseStatus(field.bytes); err != nil {
				return nil, err
			}
		case 2:
			value = field.bytes
		}
	}
	return value, nil
}

// parseStatus returns nil where the status is the one of success.
func parseStatus(b []byte) error {
	var code uint64
	var message string
	for field, err := range protoFields(b) {
		if err != nil {
			return err
		}
		switch field.id {
		case 1:
			code = field.number
		case 2:
			message = field.text()
		}
	}
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s (code %d)", message, code)
}

// nodesRequest asks for all nodes, or for those of these names. A Ray that
// doesn't know the selectors yet answers with all.
func nodesRequest(names []string) []byte {
	var b []byte
	for _, name := range names {
		selector := protowire.AppendTag(nil, 2, protowire.BytesType)
		selector = protowire.AppendString(selector, name)
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendBytes(b, selector)
	}
	return b
}

// mostNodes bounds the node table: more have no room in a reply at the 600
// bytes that a node takes, but at the two that an empty one does.
const mostNodes = gcsReplyLimit / 512

// parseNodesReply returns the node table in the order of the names, those of
// one name in the order of their starts. The GCS keeps the dead for a while.
func parseNodesReply(b []byte) ([]entry, error) {
	var nodes []entry
	for field, err := range protoFields(b) {
		if err != nil {
			return nil, err
		}
		switch field.id {
		case 1:
			if err := parseStatus(field.bytes); err != nil {
				return nil, err
			}
		case 2:
			if len(nodes) == mostNodes {
				return nil, fmt.Errorf("more than %d nodes", mostNodes)
			}
			node, err := parseNode(field.bytes)
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, node)
		}
	}
	slices.SortStableFunc(nodes, byNameAndStart)
	return nodes, nil
}

func parseNode(b []byte) (entry, error) {
	node := entry{Alive: true, Resources: map[string]float64{}}
	for field, err := range protoFields(b) {
		if err != nil {
			return entry{}, err
		}
		switch field.id {
		case 1:
			node.ID = hex.EncodeToString(field.bytes[:min(len(field.bytes), 64)])
		case 2:
			node.Address = field.text()
		case 5:
			node.Port = int(int32(field.number))
		case 7:
			node.Alive = field.number == 0
		case 8:
			node.Host = field.text()
		case 11:
			err = parseResource(field.bytes, node.Resources)
		case 12:
			node.Name = field.text()
		case 23:
			node.StartedMS = field.number
		case 25:
			node.IsHead = field.number != 0
		case 29:
			node.DeathReason, err = parseDeath(field.bytes)
		}
		if err != nil {
			return entry{}, err
		}
	}
	return node, nil
}

// parseResource adds an entry of a map of amounts.
func parseResource(b []byte, to map[string]float64) error {
	var name string
	var amount float64
	for field, err := range protoFields(b) {
		switch {
		case err != nil:
			return err
		case field.id == 1:
			name = field.text()
		case field.id == 2 && field.typ == protowire.Fixed64Type:
			amount = math.Float64frombits(field.number)
		}
	}
	to[name] = amount
	return nil
}

// deathReasons are Ray's words for why a node died.
var deathReasons = map[uint64]string{
	1: "ended as asked",
	2: "ended unexpectedly",
	3: "preempted by the autoscaler",
	4: "idle, ended by the autoscaler",
}

func parseDeath(b []byte) (string, error) {
	var kind, message string
	for field, err := range protoFields(b) {
		if err != nil {
			return "", err
		}
		switch field.id {
		case 1:
			kind = deathReasons[field.number]
		case 2:
			message = field.text()
		}
	}
	said := slices.DeleteFunc([]string{kind, message}, func(s string) bool { return s == "" })
	return strings.Join(said, ": "), nil
}

// parseHealth returns nil where the answer of a health check is SERVING.
func parseHealth(b []byte) error {
	var state uint64
	for field, err := range protoFields(b) {
		if err != nil {
			return err
		}
		if field.id == 1 {
			state = field.number
		}
	}
	if state == 1 {
		return nil
	}
	return fmt.Errorf("it answers with state %d, and 1 (SERVING) is wanted", state)
}
