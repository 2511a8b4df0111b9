package handlers_test

import (
	"os"
	"testing"

	"sluis/migrations/testdb"
	"sluis/web/browsertest"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(browsertest.Wrap(m))) }
