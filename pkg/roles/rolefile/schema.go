//go:generate go test -count=1 -run TestSchemaFile . -update

package rolefile

import (
	"encoding/json"

	"github.com/bringupd/bringupd/pkg/roles"
)

// schema is a part of a JSON schema.
type schema map[string]any

// Schema returns the JSON schema of a configuration file with roles. It accepts everything that
// [Parse] accepts, if numbers are not quoted and keys are not empty; contradictions between keys
// are found by Parse alone.
func Schema() []byte {
	keys := make(schema)
	for _, k := range roleKeys() {
		k.schema["description"] = k.doc
		keys[k.name] = k.schema
	}
	spares := wholeNumber(0, maxNodes)
	document := schema{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       "bringupd: the roles of a run",
		"description": "The file of bringupd --config. Its other keys are the settings of the flags' names.",
		"type":        "object",
		"properties": schema{
			RolesKey: schema{
				"description": "the roles of the run; the order decides which nodes they get",
				"type":        "array", "minItems": 1, "maxItems": maxRoles,
				"items": mappingOf(keys, "name"),
			},
			SparesKey: schema{
				"description": "nodes at the end of a group that no role claims: their number, " +
					"or a map from group to number",
				"anyOf": []schema{spares, {
					"type": "object", "propertyNames": schema{"pattern": "^[0-9]{1,4}$"},
					"additionalProperties": spares,
				}},
			},
		},
	}
	text, _ := json.MarshalIndent(document, "", "  ") // it has only texts and numbers
	return append(text, '\n')
}

func wholeNumber(least, limit int) schema {
	return schema{"type": "integer", "minimum": least, "maximum": limit}
}

func oneOf(words ...string) schema { return schema{"enum": words} }

func anyOf(schemas ...schema) schema { return schema{"anyOf": schemas} }

func textSchema() schema { return schema{"type": "string", "minLength": 1} }

func truthSchema() schema { return schema{"type": "boolean"} }

func nameSchema() schema {
	return schema{"type": "string", "pattern": "^[a-z][a-z0-9-]*$", "maxLength": maxNameLength}
}

func listOf(items schema, least int) schema {
	return schema{"type": "array", "items": items, "minItems": least}
}

func durationSchema() schema {
	return schema{"type": "string", "pattern": `^([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+$`}
}

func envSchema() schema {
	scalar := schema{"type": []string{"string", "number", "boolean", "null"}}
	return schema{"type": "object", "additionalProperties": scalar}
}

// mappingOf returns the schema of a mapping with these keys and no others.
func mappingOf(keys schema, required ...string) schema {
	mapping := schema{"type": "object", "properties": keys, "additionalProperties": false}
	if len(required) > 0 {
		mapping["required"] = required
	}
	return mapping
}

func portsSchema() schema {
	count := mappingOf(schema{"count": wholeNumber(1, roles.BlockSize)}, "count")
	return schema{
		"type": "object", "minProperties": 1, "propertyNames": nameSchema(),
		"additionalProperties": anyOf(wholeNumber(1, 65535), oneOf("auto"), count),
	}
}

func probeSchema(limitKey string) schema {
	return anyOf(textSchema(), mappingOf(schema{"probe": textSchema(), limitKey: durationSchema()}, "probe"))
}

func restartsSchema() schema {
	pauses := schema{"type": "string", "description": "the first and the longest pause, such as 1s..30s"}
	count := wholeNumber(0, maxRestarts)
	return anyOf(count, mappingOf(schema{"max": count, "window": durationSchema(), "backoff": pauses}, "max"))
}

func requireSchema() schema {
	quorum := anyOf(wholeNumber(0, maxInstances), oneOf("all", "any"))
	return anyOf(wholeNumber(0, maxInstances), oneOf("all", "any"), mappingOf(schema{"start": quorum, "run": quorum}))
}
