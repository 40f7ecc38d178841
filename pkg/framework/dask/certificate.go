package dask

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
)

const (
	certificateFile   = "dask.pem"
	tlsVariablePrefix = "DASK_DISTRIBUTED__COMM__TLS__" // prefix of their names
	// authorityVariable has the path of the certificate of the only trusted authority.
	authorityVariable = tlsVariablePrefix + "CA_FILE"
	// certificateName is the subject of the certificate. Dask does not compare names: possession of
	// the key is sufficient.
	certificateName = "bringupd-dask"
)

// NodeCredentials returns the certificate of the run with its key, in one file, and the variables
// by which Dask's scheduler, workers and clients find it. It returns nothing with --framework-auth=off.
func (d Cluster) NodeCredentials(node framework.Node, secret []byte) (framework.Credentials, error) {
	if !d.usesTLS() {
		return framework.Credentials{}, nil
	}
	text, err := makeCertificate(secret)
	if err != nil {
		return framework.Credentials{}, fmt.Errorf("cannot make the certificate of this run: %v", err)
	}
	env := make(map[string]string)
	for _, part := range []string{"CA_FILE", "SCHEDULER__CERT", "SCHEDULER__KEY", "WORKER__CERT",
		"WORKER__KEY", "CLIENT__CERT", "CLIENT__KEY"} {
		env[tlsVariablePrefix+part] = filepath.Join(node.TempDir, certificateFile)
	}
	return framework.Credentials{Files: map[string][]byte{certificateFile: text}, Env: env}, nil
}

// WarnIfOpen does nothing: with a certificate Dask accepts no other clients, and with
// --framework-auth=off the user wants open access.
func (Cluster) WarnIfOpen(context.Context, framework.Node, framework.Endpoint, func(string)) {}

// makeCertificate derives a key from the secret and makes a certificate for it, which is its own
// authority, so that only holders of the secret are trusted. Every node makes the same certificate:
// it uses neither random numbers nor the clock.
func makeCertificate(secret []byte) ([]byte, error) {
	key, err := deriveKey(secret)
	if err != nil {
		return nil, err
	}
	name := certificateName
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		// RFC 5280: without expiry
		NotBefore: time.Unix(0, 0).UTC(), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	// Without a source of randomness the signature is that of RFC 6979.
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...), nil
}

// deriveKey derives a P-256 key, which every OpenSSL supports, from the secret. One in 2^32 numbers
// is not valid for the curve; then the next one is used.
func deriveKey(secret []byte) (key *ecdsa.PrivateKey, err error) {
	for try := range byte(8) {
		mac := hmac.New(sha256.New, secret)
		mac.Write(append([]byte("bringupd dask tls "), try))
		if key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), mac.Sum(nil)); err == nil {
			return key, nil
		}
	}
	return nil, err
}

// clientTLSConfig returns the TLS configuration of a client of a scheduler with this certificate.
func clientTLSConfig(text []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("it contains no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots,
		ServerName: certificateName, MinVersion: tls.VersionTLS12}, nil
}
