package affinity

import (
	"fmt"
	"slices"
	"strings"
)

// ResourceKinds are the kinds of resources to which ranks are bound.
type ResourceKinds struct {
	CPU, GPU bool
	// IsStrict is set if the user has listed the kinds: a rank that cannot be bound to them fails.
	IsStrict bool
}

// AllKinds returns all kinds, which is the meaning of auto.
func AllKinds() ResourceKinds {
	return ResourceKinds{CPU: true, GPU: true}
}

// kindNames are the names of the kinds, in the order of [ResourceKinds.fields].
var kindNames = []string{"cpu", "gpu"}

func (k *ResourceKinds) fields() []*bool { return []*bool{&k.CPU, &k.GPU} }

// removedKinds have what replaces kinds of the release before.
var removedKinds = map[string]string{
	"memory":  "the kernel allocates it near the CPUs of a rank, and numactl --membind forbids other nodes",
	"network": "NCCL and UCX select the cards themselves, and BRINGUPD_GPU_NICS has those near each GPU",
}

// ParseKinds parses auto (all kinds, where possible), none, or a list of cpu and gpu.
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
		switch replacement := removedKinds[strings.TrimSpace(word)]; {
		case replacement != "":
			return ResourceKinds{}, fmt.Errorf("%s is not bound any more: leave it out; %s", word, replacement)
		case kind < 0:
			return ResourceKinds{}, fmt.Errorf("give auto, none, or a list of cpu,gpu: %q is not valid", word)
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
