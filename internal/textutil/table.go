package textutil

import (
	"strings"
	"text/tabwriter"
)

// FormatTable formats rows with aligned columns, without spaces at the ends of lines.
func FormatTable(rows [][]string) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = table.Write([]byte(strings.Join(row, "\t") + "\n")) // to a strings.Builder
	}
	_ = table.Flush()
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}
