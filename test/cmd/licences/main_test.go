package main

import (
	"os"
	"strings"
	"testing"
)

const (
	mit = "MIT License\n\nCopyright (c) 2026 A\n\n" +
		"Permission is hereby granted, free of\ncharge, to any person obtaining a copy\n"
	bsd    = "Copyright © B Authors\nRedistributions in binary form must reproduce\n"
	apache = "Apache License\nVersion 2.0, January 2004\nEND OF TERMS AND CONDITIONS\nCopyright [yyyy] [name]\n"
)

// TestDescribe checks the paragraphs of the file with licences, and that unknown terms are refused.
func TestDescribe(t *testing.T) {
	const end = "\nLicense: Apache-2.0\n Apache License\n Version 2.0, January 2004\n" +
		" END OF TERMS AND CONDITIONS\n Copyright [yyyy] [name]\n"
	module := func(path string, texts ...string) component {
		c := component{path, make(map[string]string)}
		for i := 0; i < len(texts); i += 2 {
			c.Texts[texts[i]] = texts[i+1]
		}
		return c
	}
	for name, tt := range map[string]struct {
		components []component
		want       string // without the end; empty for an error
	}{
		"two with the same terms": {
			[]component{module("a/*", "LICENSE", mit), module("b/*", "LICENSE", mit)},
			"\nFiles: a/*\n b/*\nCopyright: 2026 A\nLicense: MIT\n MIT License\n .\n Copyright (c) 2026 A\n .\n" +
				" Permission is hereby granted, free of\n charge, to any person obtaining a copy\n",
		},
		"Apache with a notice": {
			[]component{module("a/*", "LICENSE", strings.ReplaceAll(apache, "[yyyy] [name]", "2026 C"),
				"NOTICE", "by D")},
			"\nFiles: a/*\nCopyright: 2026 C\nLicense: Apache-2.0\nComment: NOTICE\n by D\n",
		},
		"no holder": {
			[]component{module("a/*", "LICENSE", apache)},
			"\nFiles: a/*\nCopyright: The authors of the module\nLicense: Apache-2.0\n",
		},
		"several": {
			[]component{module("a/*", "LICENSE", apache, "sub/COPYING", bsd)},
			"\nFiles: a/*\nCopyright: B Authors\nLicense: Apache-2.0 and BSD-2-Clause\n" +
				" Copyright © B Authors\n Redistributions in binary form must reproduce\n",
		},
		"unknown terms": {components: []component{
			module("a/*", "LICENSE", mit, "COPYING", "GNU GENERAL PUBLIC LICENSE"),
		}},
		"no terms": {components: []component{module("a/*", "NOTICE", "by D")}},
	} {
		got, err := describeAll(tt.components, apache)
		if (err != nil) != (tt.want == "") || err == nil && got != tt.want+end {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, tt.want+end)
		}
	}
}

// TestAddLicences checks that all parts of an SBOM get their licences, and that an SBOM with a module
// that the file lacks is refused.
func TestAddLicences(t *testing.T) {
	known, err := os.ReadFile("../../../THIRD_PARTY_LICENSES")
	if err != nil {
		t.Fatal(err)
	}
	sbom := func(name string) []byte {
		return []byte(`{"bomFormat": "CycloneDX",
			"metadata": {"component": {"name": "bringupd", "externalReferences": []}},
			"components": [{"name": "std"}, {"name": "` + name + `", "version": "v1"}]}`)
	}
	const want = `{
  "bomFormat": "CycloneDX",
  "components": [
    {
      "licenses": [
        {
          "expression": "BSD-3-Clause"
        }
      ],
      "name": "std"
    },
    {
      "licenses": [
        {
          "expression": "MIT AND Apache-2.0"
        }
      ],
      "name": "go.yaml.in/yaml/v3",
      "version": "v1"
    }
  ],
  "metadata": {
    "component": {
      "licenses": [
        {
          "expression": "Apache-2.0"
        }
      ],
      "name": "bringupd"
    }
  }
}
`
	if got, err := addLicences(sbom("go.yaml.in/yaml/v3"), known); err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	if got, err := addLicences(sbom("example.org/unknown"), known); err == nil {
		t.Errorf("it accepts an unknown module:\n%s", got)
	}
}
