package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
)

// Digest returns a digest of the configuration that is the same on all nodes with the same
// configuration. It includes every field, also of nested values, except those marked digest:"-".
func (c *Config) Digest() string {
	shared := *c
	shared.Team = c.Team.ForSize(c.Identity.Size)
	sum := sha256.Sum256([]byte(digestForm(reflect.ValueOf(shared))))
	return hex.EncodeToString(sum[:8])
}

// digestForm returns the complete textual form of a value: no two values of a type have the same
// form. Zero values are omitted, so that versions of bringupd with and without a field agree if the
// field is not set. Values that cannot be compared, such as functions, must be marked digest:"-".
func digestForm(v reflect.Value) string {
	switch kind := v.Kind(); {
	case kind == reflect.Func, kind == reflect.Chan, kind == reflect.Map, kind == reflect.UnsafePointer:
		panic(fmt.Sprintf("internal error: a %s can't be in a digest: mark its field", v.Type()))
	case kind == reflect.Struct:
		var all strings.Builder
		for field, value := range v.Fields() {
			if field.Tag.Get("digest") == "-" {
				continue
			}
			if form := digestForm(value); form != "" {
				fmt.Fprintf(&all, "%s:%s;", field.Name, form)
			}
		}
		return all.String()
	case v.IsZero():
		return ""
	case kind == reflect.Pointer:
		return "&" + digestForm(v.Elem())
	case kind == reflect.Interface:
		return v.Elem().Type().String() + " " + digestForm(v.Elem())
	case kind == reflect.Slice, kind == reflect.Array:
		var all strings.Builder
		for i := range v.Len() {
			fmt.Fprintf(&all, "%s,", digestForm(v.Index(i)))
		}
		return "[" + all.String() + "]"
	default:
		return fmt.Sprintf("%#v", v)
	}
}
