package report

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/internal/files"
)

// WriteFile writes the report to a file that only this user can read, because it quotes logs that
// others cannot read. It returns the absolute path. If the file cannot be written and fallbackDir is
// not empty, it writes the file of that name there.
func (v *View) WriteFile(path, fallbackDir string, format Format) (string, error) {
	var b strings.Builder
	if err := v.Write(&b, format); err != nil {
		return "", fmt.Errorf("cannot write the report: %v", err)
	}
	err := files.ReplaceFile(path, []byte(b.String()), 0o600)
	if err != nil && fallbackDir != "" {
		path = filepath.Join(fallbackDir, path)
		err = files.ReplaceFile(path, []byte(b.String()), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("cannot write the report: %v", err)
	}
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return path, nil
}
