package binding

import (
	"fmt"
	"strings"
)

// Kinds are the kinds of resources to which ranks are bound.
type Kinds struct{ CPU, Memory, Network, GPU bool }

// All returns all kinds, which is the meaning of auto.
func All() Kinds { return Kinds{CPU: true, Memory: true, Network: true, GPU: true} }

// ParseKinds parses auto (all kinds, where possible), none, or a list of cpu, memory, network and
// gpu.
func ParseKinds(text string) (Kinds, error) {
	switch text {
	case "auto":
		return All(), nil
	case "none":
		return Kinds{}, nil
	}
	var k Kinds
	for word := range strings.SplitSeq(text, ",") {
		kind := k.named(strings.TrimSpace(word))
		if kind == nil {
			return Kinds{}, fmt.Errorf("give auto, none, or some of cpu,memory,network,gpu: %q is none of these", word)
		}
		*kind = true
	}
	return k, nil
}

// named returns the field with a name, or nil if the name is unknown.
func (k *Kinds) named(word string) *bool {
	switch word {
	case "cpu":
		return &k.CPU
	case "memory":
		return &k.Memory
	case "network":
		return &k.Network
	case "gpu":
		return &k.GPU
	}
	return nil
}

// String returns the kinds in a form that [ParseKinds] accepts.
func (k Kinds) String() string {
	var words []string
	for _, word := range []string{"cpu", "memory", "network", "gpu"} {
		if *k.named(word) {
			words = append(words, word)
		}
	}
	switch len(words) {
	case 0:
		return "none"
	case 4:
		return "auto"
	}
	return strings.Join(words, ",")
}
