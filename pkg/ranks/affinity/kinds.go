package affinity

import (
	"fmt"
	"strings"
)

// ResourceKinds are the kinds of resources to which ranks are bound.
type ResourceKinds struct {
	CPU, Memory, Network, GPU bool
	// IsStrict is set if the user has listed the kinds: a rank that cannot be bound to them fails.
	IsStrict bool
}

// AllKinds returns all kinds, which is the meaning of auto.
func AllKinds() ResourceKinds {
	return ResourceKinds{CPU: true, Memory: true, Network: true, GPU: true}
}

// ParseKinds parses auto (all kinds, where possible), none, or a list of cpu, memory, network and
// gpu.
func ParseKinds(text string) (ResourceKinds, error) {
	switch text {
	case "auto":
		return AllKinds(), nil
	case "none":
		return ResourceKinds{}, nil
	}
	k := ResourceKinds{IsStrict: true}
	for word := range strings.SplitSeq(text, ",") {
		kind := k.fieldByName(strings.TrimSpace(word))
		if kind == nil {
			return ResourceKinds{}, fmt.Errorf("give auto, none, or a list of cpu,memory,network,gpu: %q is not valid", word)
		}
		*kind = true
	}
	return k, nil
}

// fieldByName returns the field with a name, or nil if the name is unknown.
func (k *ResourceKinds) fieldByName(word string) *bool {
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
func (k ResourceKinds) String() string {
	var words []string
	for _, word := range []string{"cpu", "memory", "network", "gpu"} {
		if *k.fieldByName(word) {
			words = append(words, word)
		}
	}
	switch {
	case len(words) == 0:
		return "none"
	case len(words) == 4 && !k.IsStrict:
		return "auto"
	}
	return strings.Join(words, ",")
}
