package pmi1

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/pmi"
)

// longestMapping is what MPICH 4.0 has room for in a line of 1,024 bytes, next to a name and a key of the longest.
const longestMapping = 600

// Mapping says which ranks share a node: runs of as many ranks on each of nodes that follow each other, (first node, nodes, ranks on
// each). Nodes are numbered anew, in the order in which they come: Intel MPI aborts where none is 0. It is empty where it would not
// fit; MPICH then asks around.
func Mapping(nodes []int) string {
	type run struct{ first, nodes, ranks int }
	var runs []run
	number := numbered(nodes)
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
	if b.Len() == 0 || b.Len() > longestMapping {
		return ""
	}
	return "(vector" + b.String() + ")"
}

// numbered numbers the nodes that have ranks, in the order of their first ranks.
func numbered(nodes []int) map[int]int {
	number := make(map[int]int)
	for _, node := range nodes {
		if _, known := number[node]; !known {
			number[node] = len(number)
		}
	}
	return number
}

// ranksToHosts is Intel MPI's own way to learn where ranks are: of each node the length of its name, the name, and its ranks. Its first
// line has the length of the second and the number of nodes; the second one has no end.
func ranksToHosts(job *pmi.Job) string {
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
