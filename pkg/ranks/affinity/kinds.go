package affinity

import (
	"fmt"
	"slices"
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

// kindNames are the names of the kinds, in the order of [ResourceKinds.fields].
var kindNames = []string{"cpu", "memory", "network", "gpu"}

func (k *ResourceKinds) fields() []*bool { return []*bool{&k.CPU, &k.Memory, &k.Network, &k.GPU} }

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
		kind := slices.Index(kindNames, strings.TrimSpace(word))
		if kind < 0 {
			return ResourceKinds{}, fmt.Errorf("give auto, none, or a list of %s: %q is not valid",
				strings.Join(kindNames, ","), word)
		}
		*k.fields()[kind] = true
	}
	return k, nil
}

// String returns the kinds in a form that [ParseKinds] accepts.
func (k ResourceKinds) String() string {
	var words []string
	for i, isSet := range k.fields() {
		if *isSet {
			words = append(words, kindNames[i])
		}
	}
	switch {
	case len(words) == 0:
		return "none"
	case len(words) == len(kindNames) && !k.IsStrict:
		return "auto"
	}
	return strings.Join(words, ",")
}
