package pmi

import (
	"fmt"
	"strconv"
	"strings"
)

// maxMappingLength is the maximum length of a mapping in bytes. MPICH 4.0 reads lines of 1,024
// bytes, which also contain a name and a key of the maximum length.
const maxMappingLength = 600

// ProcessMapping describes which ranks share a node, as the value of PMI_process_mapping: a list of
// blocks (first node, number of nodes, ranks per node). Nodes are renumbered in the order of their
// first ranks, because Intel MPI aborts if no node has number 0. It returns an empty string if the
// mapping is too long; MPICH then exchanges host names instead.
func ProcessMapping(nodes []int) string {
	type run struct{ first, nodes, ranks int }
	var runs []run
	number := renumberNodes(nodes)
	// Collect blocks of consecutive nodes with equal numbers of ranks.
	for begin, end := 0, 0; begin < len(nodes); begin = end {
		for end = begin; end < len(nodes) && nodes[end] == nodes[begin]; end++ {
		}
		here, ranks := number[nodes[begin]], end-begin
		if last := len(runs) - 1; last >= 0 && runs[last].ranks == ranks && runs[last].first+runs[last].nodes == here {
			runs[last].nodes++
		} else {
			runs = append(runs, run{here, 1, ranks})
		}
	}
	var b strings.Builder
	for _, r := range runs {
		fmt.Fprintf(&b, ",(%d,%d,%d)", r.first, r.nodes, r.ranks)
	}
	if b.Len() == 0 || b.Len() > maxMappingLength {
		return ""
	}
	return "(vector" + b.String() + ")"
}

// renumberNodes numbers the nodes that have ranks, in the order of their first ranks.
func renumberNodes(nodes []int) map[int]int {
	number := make(map[int]int)
	for _, node := range nodes {
		if _, known := number[node]; !known {
			number[node] = len(number)
		}
	}
	return number
}

// ranksToHosts returns the response to get_ranks2hosts, with which Intel MPI requests the nodes of
// all ranks. It lists for each node the length of its name, the name and its ranks. The first line
// contains the length of the second and the number of nodes; the second has no line end.
func ranksToHosts(job *Job) string {
	ranks := make(map[int][]string)
	var order []int
	for rank, node := range job.Nodes {
		if ranks[node] == nil {
			order = append(order, node)
		}
		ranks[node] = append(ranks[node], strconv.Itoa(rank))
	}
	var b strings.Builder
	for _, node := range order {
		host := job.Hosts[node]
		fmt.Fprintf(&b, "%d %s %s, ", len(host), host, strings.Join(ranks[node], ","))
	}
	return fmt.Sprintf("cmd=put_ranks2hosts %d %d\n%s", b.Len(), len(order), b.String())
}
