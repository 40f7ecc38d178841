package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
)

// Digest is the same on all nodes that were configured alike. Every field of the
// configuration is in it, and of all that it holds, but for those that are marked
// digest:"-".
func (c *Config) Digest() string {
	told := *c
	told.Team = c.Team.Of(c.Identity.Size)
	sum := sha256.Sum256([]byte(spelled(reflect.ValueOf(told))))
	return hex.EncodeToString(sum[:8])
}

// spelled is a value in full: no other one of its type is spelled the same. What
// is zero is left out, so that a bringupd that does not know a field yet agrees
// with one where nobody has set it. What can't be compared, such as a function,
// must be marked.
func spelled(v reflect.Value) string {
	switch kind := v.Kind(); {
	case kind == reflect.Func, kind == reflect.Chan, kind == reflect.Map, kind == reflect.UnsafePointer:
		panic(fmt.Sprintf("internal error: a %s can't be in a digest: mark its field", v.Type()))
	case kind == reflect.Struct:
		var all strings.Builder
		for field, value := range v.Fields() {
			if field.Tag.Get("digest") == "-" {
				continue
			}
			if said := spelled(value); said != "" {
				fmt.Fprintf(&all, "%s:%s;", field.Name, said)
			}
		}
		return all.String()
	case v.IsZero():
		return ""
	case kind == reflect.Pointer:
		return "&" + spelled(v.Elem())
	case kind == reflect.Interface:
		return v.Elem().Type().String() + " " + spelled(v.Elem())
	case kind == reflect.Slice, kind == reflect.Array:
		var all strings.Builder
		for i := range v.Len() {
			fmt.Fprintf(&all, "%s,", spelled(v.Index(i)))
		}
		return "[" + all.String() + "]"
	default:
		return fmt.Sprintf("%#v", v)
	}
}
