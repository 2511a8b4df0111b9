package web_test

import (
	"testing"

	"sluis/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }
