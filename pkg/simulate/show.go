package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/bringupd/bringupd/internal/files"
)

// Output states how a report is shown.
type Output struct {
	AsTable  bool
	JSONPath string // file for the JSON form; "-": standard output, in place of the text; empty: none
}

// Show writes the report.
func (o Output) Show(report Report, out io.Writer) error {
	var results bytes.Buffer
	encoder := json.NewEncoder(&results)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(report); err != nil {
		return fmt.Errorf("cannot write the results: %w", err)
	}
	if o.JSONPath == "-" {
		_, err := out.Write(results.Bytes())
		return err
	}
	text := report.Text()
	if o.AsTable {
		text = report.Table()
	}
	if _, err := io.WriteString(out, text); err != nil || o.JSONPath == "" {
		return err
	}
	if err := files.ReplaceFile(o.JSONPath, results.Bytes(), 0o600); err != nil {
		return fmt.Errorf("cannot write the results: %w", err)
	}
	return nil
}
