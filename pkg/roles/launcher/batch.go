package launcher

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// errNoFileReader is the error of reading a launcher's file if no function for it was given.
var errNoFileReader = errors.New("files are not read here")

// readLauncherFile reads a file that the launcher has made, with Overrides.ReadFile.
func (want Overrides) readLauncherFile(path string) (string, error) {
	if want.ReadFile == nil {
		return "", errNoFileReader
	}
	text, err := want.ReadFile(path)
	return string(text), err
}

// parseHostColumn returns the first word of each line of a launcher's host file, in order.
// Comments, which begin with #, are ignored.
func parseHostColumn(text string) ([]string, error) {
	var hosts []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if !isHostName(words[0]) {
			return nil, fmt.Errorf("%q where a host name was expected", shortenText(words[0]))
		}
		if hosts = append(hosts, words[0]); len(hosts) > maxNodes {
			return nil, fmt.Errorf("it has more than %d hosts", maxNodes)
		}
	}
	if len(hosts) == 0 {
		return nil, errors.New("it names no host")
	}
	return hosts, nil
}

// isHostName reports whether a text can be a host name. Batch systems also put their own keywords
// there.
func isHostName(text string) bool {
	return text != "" && len(text) <= maxNodeName && isNameByte(text[0]) && text[0] != '-' && text[0] != '.' &&
		!strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 || !isNameByte(byte(r)) })
}

// uniqueHosts returns every host once, in the order of first occurrence.
func uniqueHosts(hosts []string) []string {
	seen := make(map[string]bool, len(hosts))
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		if seen[host] {
			return true
		}
		seen[host] = true
		return false
	})
}

// hostIndex returns the index of a host in a list, or -1 if it is missing. One of the two names may
// include a domain.
func hostIndex(host string, hosts []string) int {
	if at := slices.Index(hosts, host); at >= 0 || host == "" {
		return at
	}
	return slices.IndexFunc(hosts, func(other string) bool { return isSameHost(host, other) })
}

// isSameHost compares two names, of which one may include a domain.
func isSameHost(a, b string) bool {
	labelA, domainA, _ := strings.Cut(strings.ToLower(a), ".")
	labelB, domainB, _ := strings.Cut(strings.ToLower(b), ".")
	return labelA == labelB && (domainA == "" || domainB == "" || domainA == domainB)
}

// sanitizeRunName converts a launcher's name of a job to a valid name of a run, by replacing
// unsuitable characters by dashes.
func sanitizeRunName(job string) string {
	job = strings.Map(func(r rune) rune {
		if r < 0x80 && (isNameByte(byte(r)) || r == '+') {
			return r
		}
		return '-'
	}, job)
	return strings.Trim(job, "._+-")
}

// completeIdentity completes an identity with properties that all daemons of a launch share, and
// validates it. facts distinguish this launch from another one with the same name.
func completeIdentity(id Identity, want Overrides, facts ...string) (Identity, error) {
	switch {
	case id.Size < 1 || id.Size > maxNodes:
		return Identity{}, rankError(fmt.Errorf("the number of nodes is %d, and should be 1 to %d", id.Size, maxNodes))
	case id.NodeIndex < 0 || id.NodeIndex >= id.Size:
		return Identity{}, rankError(fmt.Errorf("the rank is %d, and should be 0 to %d in a run of %d nodes", id.NodeIndex, id.Size-1, id.Size))
	}
	if want.JobID != "" {
		id.Step = want.JobID
		if id.Job == "" {
			id.Job, id.Step = want.JobID, ""
		}
	}
	if id.Hosts != nil && (len(id.Hosts) != id.Size || id.Hosts[id.NodeIndex] != id.Host) {
		id.Hosts = nil
	}
	id.LocalSize, id.GPUs = 1, -1
	id.LaunchKey = digestFacts(append([]string{string(id.Launcher), id.Job, id.Step, strconv.Itoa(id.Restart), strconv.Itoa(id.Size)}, facts...)...)
	return id, nil
}

// unnamedRunError returns the error for a launcher whose daemons share no name of their launch.
func unnamedRunError(by, mend string) error {
	return &LaunchError{
		Problem: "cannot name the run: " + by + " gives its processes nothing that identifies their launch, and runs of the same name would interfere",
		Fix:     "give --job-id=NAME, the same on all nodes and different for every launch" + mend,
	}
}

// environmentError returns the error for an environment that the launcher alone cannot have made.
func environmentError(by string, err error) error {
	return &LaunchError{
		Problem: fmt.Sprintf("cannot tell which node this is from the variables of %s: %v", by, err),
		Fix:     "let all variables of the launcher through (in a container, and where the environment is cleaned), and let nothing else set them",
	}
}

// crowdedNodeError returns the error for a daemon that is not the only one on its node.
func crowdedNodeError(seen, start string) error {
	return &LaunchError{Problem: "cannot run several daemons on one node (" + seen + "): bringupd runs once on every node", Fix: "start it with: " + start + " bringupd …"}
}
