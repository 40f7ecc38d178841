package affinity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ResourceKinds are the kinds of resources to which ranks are bound.
type ResourceKinds struct {
	CPU, Network, GPU bool
	// IsStrict is set if the user has listed the kinds: a rank that cannot be bound to them fails.
	IsStrict bool
}

// AllKinds returns all kinds, which is the meaning of auto.
func AllKinds() ResourceKinds {
	return ResourceKinds{CPU: true, Network: true, GPU: true}
}

// kindNames are the names of the kinds, in the order of [ResourceKinds.fields].
var kindNames = []string{"cpu", "network", "gpu"}

func (k *ResourceKinds) fields() []*bool { return []*bool{&k.CPU, &k.Network, &k.GPU} }

// ParseKinds parses auto (all kinds, where possible), none, or a list of cpu, network and gpu.
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
		switch {
		case strings.TrimSpace(word) == "memory": // until the next release
			return ResourceKinds{}, errors.New("memory is not bound any more: the kernel allocates it near the " +
				"CPUs of a rank; leave it out, or run numactl --membind in the command")
		case kind < 0:
			return ResourceKinds{}, fmt.Errorf("give auto, none, or a list of cpu,network,gpu: %q is not valid", word)
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
