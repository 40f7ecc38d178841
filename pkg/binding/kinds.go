package binding

import (
	"fmt"
	"strings"
)

// Kinds are what ranks are bound to.
type Kinds struct{ CPU, Memory, Network, GPU bool }

// All is what auto means.
func All() Kinds { return Kinds{CPU: true, Memory: true, Network: true, GPU: true} }

// ParseKinds reads auto (all, where it makes sense), none, or a list of cpu, memory, network and gpu.
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

// String returns what ParseKinds reads as the same.
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
