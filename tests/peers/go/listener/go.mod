module listener

go 1.26.0
