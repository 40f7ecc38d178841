package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// paragraph matches the files of a paragraph in THIRD_PARTY_LICENSES, and the names of their licences.
var paragraph = regexp.MustCompile(`(?m)^Files: (.+(?:\n .+)*)\nCopyright: .+(?:\n .+)*\nLicense: (.+)$`)

// sbomPart is a part of an SBOM whose other fields are left as they are.
type sbomPart = map[string]any

// completeSBOM adds the licences to an SBOM, and removes the address that its writer has made from the
// path of the module. It fails if the SBOM has a component without a known licence.
func completeSBOM(path string) error {
	known, err := os.ReadFile("THIRD_PARTY_LICENSES")
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	completed, err := addLicences(content, known)
	if err != nil {
		return fmt.Errorf("cannot add the licences to %s: %w", path, err)
	}
	return os.WriteFile(path, completed, 0o644) //nolint:gosec // everyone may read it
}

func addLicences(content, known []byte) ([]byte, error) {
	licences := make(map[string]string)
	for _, found := range paragraph.FindAllSubmatch(known, -1) {
		for file := range strings.FieldsSeq(string(found[1])) {
			licences[file] = strings.ReplaceAll(string(found[2]), " and ", " AND ")
		}
	}
	var sbom struct {
		Metadata struct {
			Component sbomPart `json:"component"`
		} `json:"metadata"`
		Components []sbomPart `json:"components"`
	}
	var all sbomPart
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &sbom); err != nil {
		return nil, err
	}
	own := sbom.Metadata.Component
	delete(own, "externalReferences")
	own["licenses"] = expression("Apache-2.0")
	for _, component := range sbom.Components {
		name, _ := component["name"].(string)
		file := "vendor/" + name + "/*"
		if name == "std" {
			file = "go/*"
		}
		if licences[file] == "" {
			return nil, fmt.Errorf("%s is not in THIRD_PARTY_LICENSES: run make licences", name)
		}
		component["licenses"] = expression(licences[file])
	}
	metadata, _ := all["metadata"].(sbomPart)
	metadata["component"], all["components"] = own, sbom.Components
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(all)
	return out.Bytes(), err
}

// expression returns the field licenses of a component.
func expression(spdx string) []sbomPart { return []sbomPart{{"expression": spdx}} }
